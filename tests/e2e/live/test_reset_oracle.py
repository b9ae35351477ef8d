"""Reset strategies and their CSV against Kafka's own kafka-consumer-groups, on logs of every shape."""

import re
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, TopicPartition

from offsetlake.log.cluster.admin import ClusterAdmin, OffsetToCommit
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.rules import offsets_csv, strategies
from support.broker import workload
from support.broker.broker import Broker
from support.broker.kafka_tools import GROUP_COMMAND, group_command, java
from support.long_cases import long_cases

pytestmark = [pytest.mark.broker, pytest.mark.slow]

GROUP, TOPIC = "reset-oracle", "reset-oracle"
HOUR = 3_600_000
COUNTS = [10, 0, 10, 5, 5, 0, 5]
DELETED_BEFORE = {2: 6, 6: 5}
COMMITTED = {0: 4, 1: 0, 2: 2, 3: 9, 6: 3}
PARTITIONS = range(len(COUNTS))

CLAMPED = re.compile(rf"New offset \(-?\d+\) is (?:higher|lower) than \w+ offset for topic partition {TOPIC}-(\d+)")
FALLEN_BACK = re.compile(rf"Warn: Partition (\d+) from topic {TOPIC} is empty")
PLANNED = re.compile(rf"^{GROUP} +{TOPIC} +(\d+) +(\d+) *$", re.MULTILINE)


class Cluster(NamedTuple):
    """A broker, an ClusterAdmin of it, and when the newest record of partition 0 was written (ms)."""

    bootstrap: str
    admin: ClusterAdmin
    newest: int


@pytest.fixture(scope="module")
def cluster(broker: Broker) -> Cluster:
    bootstrap, newest = broker.bootstrap, time.time_ns() // 1_000_000 - HOUR
    workload.create_topic(bootstrap, TOPIC, len(COUNTS))
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, count in enumerate(COUNTS):
        for number in range(count):
            # An hour between records; two of each partition not in order.
            age = count - 1 - (number ^ 1 if number in {2, 3} else number)
            producer.produce(TOPIC, b"x", partition=partition, timestamp=newest - age * HOUR)
    assert producer.flush(30) == 0
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as client:
        client.delete_records({TopicPartition(TOPIC, number): offset for number, offset in DELETED_BEFORE.items()})
    with ClusterAdmin(KafkaConnection(bootstrap=bootstrap)) as admin:
        done = admin.commit(GROUP, {(TOPIC, number): OffsetToCommit(offset) for number, offset in COMMITTED.items()})
        assert set(done.values()) == {None}
    return Cluster(bootstrap, ClusterAdmin(KafkaConnection(bootstrap=bootstrap)), newest)


def kafka(cluster: Cluster, *arguments: str) -> str:
    """What it prints and logs: what it clamps is a warning in its log, which only a JVM of its own has."""
    command = java(GROUP_COMMAND, "--bootstrap-server", cluster.bootstrap, "--reset-offsets", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


def rows(cluster: Cluster, partitions: range | list[int], at: int | None = None) -> pa.Table:
    asked = [(TOPIC, number) for number in partitions]
    with cluster.admin as admin:
        committed, ends = admin.committed(GROUP), admin.log_ends(asked)
        times = {} if at is None else admin.offsets_at(asked, at)
    return pa.table(
        {
            "group_id": pa.array([GROUP] * len(asked)),
            "topic": pa.array([TOPIC] * len(asked)),
            "partition": pa.array(partitions, pa.int32()),
            "committed_offset": pa.array(
                [committed[key].offset if key in committed else None for key in asked], pa.int64()
            ),
            "earliest": pa.array([ends[key][0] for key in asked], pa.int64()),
            "latest": pa.array([ends[key][1] for key in asked], pa.int64()),
            "at_time": pa.array([times.get(key) for key in asked], pa.int64()),
        }
    )


def planned(plan: pa.Table) -> dict[int, int]:
    return dict(zip(plan["partition"].to_pylist(), plan["new_offset"].to_pylist(), strict=True))


def noted(plan: pa.Table, what: str) -> set[int]:
    notes = zip(plan["partition"].to_pylist(), plan["note"].to_pylist(), strict=True)
    return {partition for partition, note in notes if what in (note or "")}


def agrees(cluster: Cluster, plan: pa.Table, *option: str) -> None:
    named = ",".join(map(str, plan["partition"].to_pylist()))
    said = kafka(cluster, "--group", GROUP, "--topic", f"{TOPIC}:{named}", "--dry-run", *option)
    assert planned(plan) == {int(partition): int(offset) for partition, offset in PLANNED.findall(said)}, said
    assert noted(plan, "clamped to") == {int(partition) for partition in CLAMPED.findall(said)}, said
    assert noted(plan, "no record at or after") == {int(partition) for partition in FALLEN_BACK.findall(said)}, said


def test_logs_have_different_ends_and_committed_offsets(cluster: Cluster) -> None:
    table = rows(cluster, PARTITIONS)
    assert table["earliest"].to_pylist() == [0, 0, 6, 0, 0, 0, 5]
    assert table["latest"].to_pylist() == COUNTS
    assert table["committed_offset"].to_pylist() == [COMMITTED.get(number) for number in PARTITIONS]


@pytest.mark.long
@pytest.mark.parametrize("strategy", [strategies.to_earliest, strategies.to_latest, strategies.to_current])
def test_reset_to_log_ends_or_current_equals_kafkas_tool(
    cluster: Cluster, strategy: Callable[[pa.Table], pa.Table]
) -> None:
    agrees(cluster, strategy(rows(cluster, PARTITIONS)), f"--{strategy.__name__.replace('_', '-')}")


@pytest.mark.parametrize("offset", [-1, *long_cases((0, 5, 2**63 - 1))])
def test_reset_to_offset_equals_kafkas_tool(cluster: Cluster, offset: int) -> None:
    agrees(cluster, strategies.to_offset(rows(cluster, PARTITIONS), offset), f"--to-offset={offset}")


@pytest.mark.long
@pytest.mark.parametrize("count", [3, -3])
def test_shift_by_equals_kafkas_tool(cluster: Cluster, count: int) -> None:
    agrees(cluster, strategies.shift_by(rows(cluster, list(COMMITTED)), count), "--shift-by", str(count))


def test_shift_by_beyond_the_largest_offset_is_clamped(cluster: Cluster) -> None:
    most = 2**63 - 1
    said = kafka(cluster, "--group", GROUP, "--topic", f"{TOPIC}:0", "--dry-run", "--shift-by", str(most))
    assert PLANNED.findall(said) == [("0", "0")]  # wrapped around
    assert planned(strategies.shift_by(rows(cluster, [0]), most)) == {0: 10}


def test_shift_by_without_a_committed_offset_plans_no_offset(cluster: Cluster) -> None:
    plan = strategies.shift_by(rows(cluster, [0, 4]), 1)
    assert planned(plan) == {0: 5, 4: None}
    refused = group_command(
        cluster.bootstrap, "--reset-offsets", "--group", GROUP, "--topic", TOPIC, "--shift-by", "1", "--dry-run"
    )
    assert f"Cannot shift offset for partition {TOPIC}-4 since there is no current committed offset" in (
        refused.out + refused.err
    )
    assert PLANNED.findall(refused.out) == []


@pytest.mark.parametrize("ms", [-4 * HOUR, *long_cases((-6 * HOUR - 1, -100 * HOUR, 1))])
def test_reset_to_datetime_equals_kafkas_tool(cluster: Cluster, ms: int) -> None:
    at = cluster.newest + ms
    text = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    agrees(cluster, strategies.to_time(rows(cluster, PARTITIONS, at)), "--to-datetime", text)


@pytest.mark.long
def test_reset_by_duration_equals_kafkas_tool(cluster: Cluster) -> None:
    at = time.time_ns() // 1_000_000 - 4 * HOUR - HOUR // 2
    agrees(cluster, strategies.to_time(rows(cluster, PARTITIONS, at)), "--by-duration", "PT4H30M")


@pytest.mark.long
def test_csv_of_one_group_is_exchanged_with_kafkas_tool(cluster: Cluster, tmp_path: Path) -> None:
    plan = strategies.to_current(rows(cluster, PARTITIONS))
    ours = offsets_csv.write_offsets(plan, with_group=False)
    theirs = kafka(cluster, "--group", GROUP, "--topic", TOPIC, "--to-current", "--export").encode()
    assert sorted(theirs.split()) == sorted(ours.split())
    read = offsets_csv.read_offsets(theirs, GROUP)
    assert planned(read) == planned(plan)
    assert set(read["group_id"].to_pylist()) == {GROUP}
    file = tmp_path / "offsets.csv"
    file.write_bytes(ours)
    said = kafka(cluster, "--group", GROUP, "--from-file", str(file), "--dry-run")
    # Two of the offsets are outside the log, and Kafka clamps what it reads from a file.
    clamped = strategies.to_offset(rows(cluster, PARTITIONS), offsets_csv.read_offsets(ours, GROUP)["new_offset"])
    assert planned(clamped) == {int(partition): int(offset) for partition, offset in PLANNED.findall(said)}
    assert noted(clamped, "clamped to") == {int(partition) for partition in CLAMPED.findall(said)} == {2, 3, 6}


@pytest.mark.long
def test_csv_of_several_groups_is_exchanged_with_kafkas_tool(cluster: Cluster, tmp_path: Path) -> None:
    groups = [GROUP, 'reset "oracle", 日本', "reset oracle of more letters than Jackson looks at"]
    with cluster.admin as admin:
        for group in groups[1:]:
            assert admin.commit(group, {(TOPIC, 0): OffsetToCommit(3)}) == {(TOPIC, 0): None}
    named = [part for group in groups for part in ("--group", group)]
    theirs = kafka(cluster, *named, "--topic", f"{TOPIC}:0", "--to-current", "--export").encode()
    read = offsets_csv.read_offsets(theirs, None)
    assert set(zip(read["group_id"].to_pylist(), read["new_offset"].to_pylist(), strict=True)) == {
        *((group, 3) for group in groups[1:]),
        (GROUP, 4),
    }
    ours = offsets_csv.write_offsets(read, with_group=True)
    assert ours == theirs.removesuffix(b"\n")
    file = tmp_path / "offsets.csv"
    file.write_bytes(ours)
    assert kafka(cluster, *named, "--from-file", str(file), "--export").encode() == theirs
