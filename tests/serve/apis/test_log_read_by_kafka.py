"""The log that the serving process writes has Kafka's format: kafka-dump-log prints it, and a broker loads it."""

from pathlib import Path
from typing import Any

import pytest

from support.broker import workload
from support.broker.broker import Broker
from support.broker.data_folder import copy_log, put_back
from support.broker.tools import broker_offsets
from support.oracle.dump_log import parse_dump, run_dump_log
from support.oracle.log_reader import read_log
from support.serve.serving import Serving
from support.serve.wire_client import OFFSET_COMMIT, OFFSET_FETCH, WireClient

TOPIC, PARTITIONS, BEFORE = "log-is-kafkas", 3, "log-is-kafkas-before"
VERSIONS = range(2, 10)
DELETE_GROUPS = 42

pytestmark = [pytest.mark.broker, pytest.mark.slow]

Offsets = dict[tuple[str, str, int], tuple[int, int, str]]


def commit(client: WireClient, version: int, group: str, offsets: dict[int, tuple[int, int, str]]) -> None:
    rows = [
        {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": epoch,
            "committed_metadata": metadata,
        }
        for partition, (offset, epoch, metadata) in offsets.items()
    ]
    fields: dict[str, Any] = {"generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": ""}
    fields |= {"retention_time_ms": -1, "group_instance_id": None}
    answer = client.ask(
        OFFSET_COMMIT, version, fields | {"group_id": group, "topics": [{"name": TOPIC, "partitions": rows}]}
    )
    assert {each["error_code"] for each in answer["topics"][0]["partitions"]} == {0}


def served(client: WireClient, groups: list[str]) -> Offsets:
    """Return all served offsets of some groups, in the form of `broker_offsets`."""
    found: Offsets = {}
    for group in groups:
        for topic in client.ask(OFFSET_FETCH, 5, {"group_id": group, "topics": None})["topics"]:
            for row in topic["partitions"]:
                value = row["committed_offset"], row["committed_leader_epoch"], row["metadata"]
                found[group, topic["name"], row["partition_index"]] = value
    return found


@pytest.mark.long
def test_broker_loads_the_log_of_the_serving_process(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    log = tmp_path / "log"
    groups = [BEFORE, *(f"log-is-kafkas-{version}" for version in VERSIONS)]
    with Broker(tmp_path / "broker") as broker:
        workload.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        workload.simple_commit(broker.bootstrap, BEFORE, {(TOPIC, 0): 1})
        broker.stop()
        copy_log(broker.data_dir, log)
        with (
            Serving(tmp_path / "lake", log, topics={TOPIC: PARTITIONS}) as serving,
            WireClient(serving.bootstrap) as client,
        ):
            for version, group in zip(VERSIONS, groups[1:], strict=True):
                epoch = 7 if version >= 6 else -1
                commit(client, version, group, {0: (42, epoch, "é"), 1: (2**62, epoch, "")})
                commit(client, version, group, {1: (43, epoch, ""), 2: (0, epoch, "m" * 4096)})
            commit(client, 9, "log-is-kafkas-gone", {0: (1, -1, "")})
            deleted = client.ask(DELETE_GROUPS, 2, {"groups_names": ["log-is-kafkas-gone"]})
            assert [row["error_code"] for row in deleted["results"]] == [0]
            expected = served(client, [*groups, "log-is-kafkas-gone"])
        assert len(expected) == 1 + PARTITIONS * len(VERSIONS)
        put_back(log, broker.data_dir)
        broker.start()
        for group in groups:  # succeeds once the log partition of the group is loaded
            workload.simple_commit(broker.bootstrap, group, {(TOPIC, 0): 5})
        answered = broker_offsets(broker.bootstrap)
    again = {(group, TOPIC, 0): (5, -1, "") for group in groups}
    assert answered == expected | again
    dumped = [record for record in parse_dump(run_dump_log(sorted(log.glob("*/*.log")))) if record.payload]
    commits = [record for record in dumped if record.key and "partition" in record.key["data"]]
    assert len(commits) == 1 + 4 * len(VERSIONS) + 1
    recorded = [dict(record.headers)[b"act.what"] for record in read_log(log) if record.headers]
    assert (recorded.count(b"commit"), recorded.count(b"delete group")) == (2 * len(VERSIONS) + 1, 1), (
        "brokers ignore the headers"
    )
