"""`offsetlake reset` plans what kafka-consumer-groups plans: scopes, strategies and export, as the command is wired.

What each strategy gives on logs of every shape, and the CSV, are held in test_reset_oracle.py.
"""

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from support.broker import workload
from support.broker.broker import Broker
from support.broker.kafka_tools import group_command
from support.e2e.live import Live, lake_of

pytestmark = [pytest.mark.broker, pytest.mark.slow]

GROUP, FIRST, SECOND = "plans", "plans-first", "plans-second"
HOUR = 3_600_000
PLANNED = re.compile(rf"^{GROUP} +(\S+) +(\d+) +(\d+) *$", re.MULTILINE)
ALL, TOPIC, SOME = ["--all-topics"], ["--topic", FIRST], ["--topic", f"{FIRST}:0,2", "--topic", SECOND]

Planned = dict[tuple[str, int], int]


class Plans(NamedTuple):
    """A broker with two topics and a group, a lake of it, and when the newest record was written (ms)."""

    broker: Broker
    lake: Path
    newest: int


@pytest.fixture(scope="module")
def plans(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Plans:
    newest = time.time_ns() // 1_000_000 - HOUR
    lake = lake_of(broker, tmp_path_factory.mktemp("plans"))
    workload.create_topic(broker.bootstrap, FIRST, 3)
    workload.create_topic(broker.bootstrap, SECOND, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for topic, partition, count in ((FIRST, 0, 10), (FIRST, 1, 4), (FIRST, 2, 6), (SECOND, 0, 8)):
        for number in range(count):
            producer.produce(topic, b"x", partition=partition, timestamp=newest - (count - 1 - number) * HOUR)
    assert producer.flush(30) == 0
    # Beyond the log end, and none at all of one partition.
    workload.simple_commit(broker.bootstrap, GROUP, {(FIRST, 0): 4, (FIRST, 2): 9, (SECOND, 0): 1})
    return Plans(broker, lake, newest)


@pytest.fixture
def live(plans: Plans, capsys: pytest.CaptureFixture[str]) -> Live:
    return Live(plans.broker, plans.lake, capsys)


def kafka(live: Live, *arguments: str) -> str:
    done = group_command(live.broker.bootstrap, "--reset-offsets", "--group", GROUP, *arguments)
    assert done.code == 0, done
    return done.out


def planned_by_kafka(live: Live, *arguments: str) -> Planned:
    said = kafka(live, *arguments, "--dry-run")
    return {(topic, int(partition)): int(offset) for topic, partition, offset in PLANNED.findall(said)}


def planned(live: Live, *arguments: str) -> Planned:
    """The new offset of each partition, those too that already have it."""
    now = live.committed_offsets(GROUP)
    answer = live.ask("reset", GROUP, *arguments)
    assert answer.code == 0, answer.err
    for row in answer.rows:
        current = now.get((row["topic"], row["partition"]))
        assert row["previous_offset"] == current
        assert row["outcome"] == ("unchanged" if row["committed_offset"] == current else "planned")
    return {(row["topic"], row["partition"]): row["committed_offset"] for row in answer.rows}


@pytest.mark.parametrize(
    ("scope", "strategy"),
    [
        (ALL, ["--to-earliest"]),
        (SOME, ["--to-offset", "5000"]),
        (TOPIC, ["--to-latest"]),
        (SOME, ["--to-offset", "5"]),
        (ALL, ["--shift-by", "-2"]),
        (TOPIC, ["--to-current"]),
    ],
)
def test_plan_equals_the_dry_run_of_kafkas_tool(live: Live, scope: list[str], strategy: list[str]) -> None:
    now = live.committed_offsets(GROUP)
    theirs = planned_by_kafka(live, *scope, *strategy)
    assert theirs, "a plan of nothing would prove nothing"
    assert planned(live, *scope, *strategy) == theirs
    assert live.committed_offsets(GROUP) == now


def test_plan_by_time_equals_that_of_kafkas_tool(live: Live, plans: Plans) -> None:
    at = datetime.fromtimestamp((plans.newest - 3 * HOUR) / 1000, UTC)
    kafkas = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    expected = {(FIRST, 0): 6, (FIRST, 2): 2}
    assert planned_by_kafka(live, "--topic", f"{FIRST}:0,2", "--to-datetime", kafkas) == expected
    assert planned(live, "--topic", f"{FIRST}:0,2", "--to-datetime", at.isoformat(timespec="milliseconds")) == expected
    # Half an hour from the nearest record on either side: the minutes the test takes change nothing.
    by_duration = {(FIRST, 0): 7, (FIRST, 1): 1, (FIRST, 2): 3}
    assert planned_by_kafka(live, *TOPIC, "--by-duration", "PT3H30M") == by_duration
    for duration in ("PT3H30M", "210m"):
        assert planned(live, *TOPIC, "--by-duration", duration) == by_duration


@pytest.mark.parametrize("strategy", ["--to-current", "--to-latest"])
def test_export_equals_that_of_kafkas_tool(live: Live, strategy: str) -> None:
    code, ours, _ = live.plain("reset", GROUP, "--all-topics", strategy, "--export")
    assert code == 0
    theirs = kafka(live, "--all-topics", strategy, "--export")
    assert sorted(ours.splitlines()) == sorted(theirs.strip().splitlines())


def test_plan_shows_requested_and_clamped_offsets(live: Live) -> None:
    """The tool's case of `--to-offset 5000` where the log ends before, and the group is at its end already."""
    answer = live.ask("reset", GROUP, "--topic", f"{FIRST}:0,2", "--to-offset", "5000")
    columns = ("partition", "previous_offset", "requested_offset", "committed_offset", "outcome", "reason")
    assert [tuple(row[name] for name in columns) for row in answer.rows] == [
        (0, 4, 5000, 10, "planned", "clamped to the log end 10"),
        (2, 9, 5000, 6, "planned", "clamped to the log end 6"),
    ]
    code, out, _ = live.plain("reset", GROUP, "--topic", f"{SECOND}:0", "--to-offset", "1")
    assert code == 0
    assert out.splitlines()[1].split() == [GROUP, SECOND, "0", "1", "1", "1", "0", "unchanged"]
