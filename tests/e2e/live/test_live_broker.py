"""A live broker: after a cycle the tables say what the broker itself answers, before and after more traffic."""

import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from offsetlake.errors import LogMismatch
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.pipeline.compact.job import compact
from offsetlake.pipeline.ingest.job import ingest
from support.broker import workload
from support.broker.broker import Broker
from support.e2e.in_process import InProcess
from support.e2e.lakes import rows
from support.e2e.live import assert_as_the_broker_answers
from support.lakes import new_lake

pytestmark = pytest.mark.broker

TOPIC = "live-orders"
ALL = {(TOPIC, 0): 3, (TOPIC, 1): 4, (TOPIC, 2): 5}


def _cycle(spark: Any, lake: Lake, bootstrap: str) -> None:
    log = LogAddress(connection=KafkaConnection.from_settings({"bootstrap.servers": bootstrap}))
    ingest(lambda: spark, lake, log, lambda _: None)
    compact(lambda: spark, lake, lambda _: None)


@pytest.mark.long
@pytest.mark.jvm
def test_commits_of_every_client_type_equal_the_brokers_answers(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    bootstrap, lake = broker.bootstrap, new_lake(tmp_path / "lake")
    workload.create_topic(bootstrap, TOPIC, 3)
    workload.produce(bootstrap, TOPIC, 10)
    with ExitStack() as alive:
        alive.enter_context(closing(workload.member(bootstrap, "live-classic", ALL, "classic")))
        alive.enter_context(closing(workload.member(bootstrap, "live-848", ALL, "consumer")))
        workload.member(bootstrap, "live-classic-left", ALL, "classic").close()
        workload.member(bootstrap, "live-848-left", ALL, "consumer").close()
        workload.simple_commit(bootstrap, "live-simple", ALL, leader_epoch=0)
        workload.aiokafka_member(bootstrap, "live-aiokafka", ALL, "мета")
        workload.simple_commit(bootstrap, "live-deleted", ALL)
        workload.delete_group(bootstrap, "live-deleted")
        workload.simple_commit(bootstrap, "live-cut", ALL)
        workload.delete_offsets(bootstrap, "live-cut", TOPIC, [1])
        workload.committed_transaction(bootstrap, "live-t1", "live-transactions", ALL)
        workload.aborted_transaction(bootstrap, "live-t1", "live-transactions", {(TOPIC, 0): 30})
        workload.crossed_transactions(bootstrap, "live-crossed", {(TOPIC, 0): 1}, {(TOPIC, 0): 2})
        hanging = workload.open_transaction(bootstrap, "live-t2", "live-transactions", {(TOPIC, 1): 40})
        workload.share_group(bootstrap, "live-share", TOPIC, 10)
        workload.bulk_commits(bootstrap, TOPIC, groups=30, partitions=3, rounds=5)
        _cycle(spark, lake, bootstrap)
        assert_as_the_broker_answers(lake, bootstrap)
        waiting = [row for row in rows(lake, "pending_offsets") if row["group_id"] == "live-transactions"]
        assert [(row["partition"], row["committed_offset"]) for row in waiting] == [(1, 40)]
        assert [row for row in rows(lake, "share_state_records") if row["group_id"] == "live-share"]
        assert {row["member_state"] for row in rows(lake, "group_members") if row["group_id"] == "live-848"} == {
            "STABLE"
        }

        workload.admin_reset(bootstrap, "live-simple", {(TOPIC, 2): 1})
        workload.delete_group(bootstrap, "live-classic-left")
        workload.simple_commit(bootstrap, "live-new", ALL)
        workload.simple_commit(bootstrap, "live-transactions", {(TOPIC, 0): 50})
        hanging.commit()
    _cycle(spark, lake, bootstrap)
    assert_as_the_broker_answers(lake, bootstrap)
    assert [row for row in rows(lake, "pending_offsets") if row["group_id"] == "live-transactions"] == []


@pytest.mark.long
def test_live_cluster_and_its_log_folder_give_the_same_tables(broker: Broker, tmp_path: Path) -> None:
    workload.create_topic(broker.bootstrap, "live-cli-topic", 1)
    workload.simple_commit(broker.bootstrap, "live-cli", {("live-cli-topic", 0): 7})
    main = [sys.executable, "-c", "from offsetlake.cli.main import main; main()"]
    run = [*main, "run", "--lake", str(tmp_path / "lake")]
    first = subprocess.run([*run, "--bootstrap", broker.bootstrap], capture_output=True, encoding="utf-8", check=False)
    assert first.returncode == 0, first.stderr
    # The same cluster's folder has the same cluster id: the lake goes on from it.
    again = subprocess.run([*run, "--log", str(broker.data_dir)], capture_output=True, encoding="utf-8", check=False)
    assert again.returncode == 0, again.stderr
    assert not any(row["gaps"] for row in rows(Lake.open(tmp_path / "lake"), "runs"))


def test_log_of_a_different_cluster_is_refused(broker: Broker, tmp_path: Path) -> None:
    other = tmp_path / "log"
    (other / "__consumer_offsets-0").mkdir(parents=True)
    (other / "__consumer_offsets-0" / "00000000000000000000.log").touch()
    (other / "meta.properties").write_text("version=1\ncluster.id=another\n")
    lake = new_lake(tmp_path / "lake")
    workload.create_topic(broker.bootstrap, "live-identity-topic", 1)
    workload.simple_commit(broker.bootstrap, "live-identity", {("live-identity-topic", 0): 7})
    _cycle(InProcess(), lake, broker.bootstrap)
    with pytest.raises(LogMismatch, match="another"):
        ingest(InProcess, lake, LogAddress(folder=other), lambda _: None)
