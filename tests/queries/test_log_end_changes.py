"""The table `log_ends` contains changes only: every answer equals that over a table with every observation."""

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from offsetlake.kafka.records.coordinator_records import OffsetsRecordType
from offsetlake.lake.files import active_files
from offsetlake.lake.lake import Lake
from offsetlake.lake.log_ends import ends_asked_by, newest_asked, newest_ends, rows_until
from offsetlake.pipeline.ingest import log_ends
from offsetlake.queries.lag import lag_of_partitions
from offsetlake.queries.lag_over_time import lag_over_time
from support.lakes import new_lake
from support.queries.lakes import commit, end, small_lake

Observation = tuple[int, str, int, int, int]
"""An ingest, a topic, a partition, its log end offset, and when the cluster returned it."""

STEP_MS = 1000


def observe(random_: random.Random, ingests: int) -> list[Observation]:
    """Some partitions grow, are recreated, are missing for an ingest, and are asked for late, as new topics are."""
    observed: list[Observation] = []
    ends: dict[tuple[str, int], int] = {}
    for run in range(1, ingests + 1):
        asked = STEP_MS * run
        if random_.random() < 0.1:
            continue  # the cluster did not answer
        for key in [(topic, partition) for topic in "abc" for partition in range(3)]:
            if key not in ends and random_.random() < 0.3:
                ends[key] = random_.randint(0, 5)
            elif random_.random() < 0.3:
                ends[key] = random_.choice([ends.get(key, 0) + random_.randint(1, 9), random_.randint(0, 3)])
            if key in ends and random_.random() < 0.9:
                late = key[0] == "c" and random_.random() < 0.5
                observed.append((run, *key, ends[key], asked + 200 * late))
    return observed


def record(lake: Lake, observed: Iterable[Observation]) -> None:
    """Record observations as ingests do."""
    by_run: dict[int, list[Observation]] = {}
    for row in observed:
        by_run.setdefault(row[0], []).append(row)
    for run, rows in by_run.items():
        asked = STEP_MS * run if any(row[4] == STEP_MS * run for row in rows) else None
        log_ends.record(lake, run, [[topic, number, 0, last, at] for _, topic, number, last, at in rows], asked)


def full(observed: Iterable[Observation]) -> list[Any]:
    """The rows that a program before lake version 7 wrote."""
    return [end(run, last, topic=t, partition=p, asked_timestamp=at) for run, t, p, last, at in observed]


def commits(random_: random.Random, ingests: int) -> list[Any]:
    rows = []
    for offset in range(150):
        time = random_.randint(0, STEP_MS * ingests)
        key = {"group_id": random_.choice("ghij"), "topic": random_.choice("abc"), "partition": random_.randint(0, 2)}
        at = {"commit_timestamp": time, "ingest_run": time // STEP_MS + 1}
        rows.append(commit(offset, random_.randint(0, 30), **key, **at))
    return rows


@pytest.fixture
def frequent_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_ends, "MAX_ASKS", 6)


@pytest.mark.long
@pytest.mark.parametrize(("seed", "before_upgrade"), [(1, 0), (2, 8), (3, 20)])
@pytest.mark.usefixtures("frequent_records")
def test_answers_are_those_of_a_table_with_every_observation(tmp_path: Path, seed: int, before_upgrade: int) -> None:
    random_, ingests = random.Random(seed), 24
    observed, history = observe(random_, ingests), commits(random_, ingests)
    old = [row for row in observed if row[0] <= before_upgrade]
    changes = small_lake(tmp_path / "changes", log_ends=full(old), offset_commits=history)
    record(changes, observed[len(old) :])
    every = small_lake(tmp_path / "every", log_ends=full(observed), offset_commits=history)
    assert changes.count("log_ends", "topic IS NOT NULL") < every.count("log_ends") or before_upgrade == 20
    for instant in [None, *range(5 * STEP_MS, STEP_MS * (ingests + 2), 5_100)]:
        assert lag_of_partitions(changes, now=instant).equals(lag_of_partitions(every, now=instant)), instant
    for group in "ghij":
        assert lag_over_time(changes, group).equals(lag_over_time(every, group))
    columns = ["topic", "partition", "start_offset", "end_offset", "asked_timestamp"]
    order = [(name, "ascending") for name in columns]
    newest = [newest_ends(lake).select(columns).sort_by(order).to_pylist() for lake in (changes, every)]
    assert newest[0] == newest[1]


@pytest.mark.parametrize("seed", [5, pytest.param(6, marks=pytest.mark.long)])
@pytest.mark.usefixtures("frequent_records")
def test_every_observation_is_restored(tmp_path: Path, seed: int) -> None:
    observed, lake = observe(random.Random(seed), 20), new_lake(tmp_path / "lake")
    record(lake, observed)
    for run in sorted({row[0] for row in observed}):
        rows = rows_until(lake, 0, run).observed(every=True).drop_columns(["first_timestamp"]).to_pylist()
        assert sorted(tuple(row.values()) for row in rows) == [row for row in observed if row[0] <= run]
        current = {(row["topic"], row["partition"], row["end_offset"]) for row in ends_asked_by(lake, run).to_pylist()}
        assert current == {row[1:4] for row in observed if row[0] == run}
        assert newest_asked(lake, STEP_MS * (run + 1) - 1) == run


def test_only_changed_partitions_have_rows(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    for run, ends in enumerate([(5, 7), (5, 7), (6, 7), (6, 7)], start=1):
        rows = [["t", number, 0, last, 1000 * run] for number, last in enumerate(ends)]
        log_ends.record(lake, run, rows, 1000 * run)
        log_ends.record(lake, run, rows, 1000 * run)  # a resumed run writes nothing twice
    rows = lake.query("SELECT ingest_run, topic, partition, end_offset FROM log_ends").to_pylist()
    assert sorted(tuple(row.values()) for row in rows if row["topic"]) == [
        (1, "t", 0, 5),
        (1, "t", 1, 7),
        (3, "t", 0, 6),
    ]
    assert sorted(row["ingest_run"] for row in rows if row["topic"] is None) == [1, 2, 3, 4]
    newest = newest_ends(lake).select(["partition", "end_offset", "asked_timestamp"]).to_pylist()
    assert sorted(tuple(row.values()) for row in newest) == [(0, 6, 4000), (1, 7, 4000)]


def test_lag_of_a_partition_that_no_longer_exists_is_unknown(tmp_path: Path) -> None:
    lake = small_lake(tmp_path / "lake", offset_commits=[commit(1, 3)])
    log_ends.record(lake, 1, [["t", 0, 0, 9, 1000]], 1000)
    (row,) = lag_of_partitions(lake).to_pylist()
    assert (row["end_offset"], row["lag"]) == (9, 6)
    log_ends.record(lake, 2, [], 2000)
    (row,) = lag_of_partitions(lake).to_pylist()
    assert (row["status"], row["end_offset"], row["lag"]) == ("UNKNOWN", None, None)
    assert not newest_ends(lake).num_rows
    (row,) = lag_of_partitions(lake, now=1999).to_pylist()
    assert row["lag"] == 6
    log_ends.record(lake, 3, [], None)  # the cluster did not answer
    assert newest_asked(lake) == 2


def test_topic_that_was_created_again_is_recorded_with_its_id(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    for run, row in enumerate([[0, 5], [0, 5, "old"], [0, 5, "old"], [0, 5, "new"]], start=1):
        start_and_end, topic_id = row[:2], row[2:]  # a plan of an older version has no ID
        log_ends.record(lake, run, [["t", 0, *start_and_end, 1000 * run, *topic_id]], 1000 * run)
    rows = lake.query("SELECT ingest_run, topic_id FROM log_ends WHERE topic IS NOT NULL ORDER BY 1").to_pylist()
    assert [tuple(row.values()) for row in rows] == [(1, None), (2, "old"), (4, "new")]


def record_of(record_type: int, value: dict[str, Any], log_offset: int) -> dict[str, Any]:
    return {
        "ingest_run": 2, "group_id": "g", "log_offset": log_offset, "kind": "value", "record_name": "any",
        "record_type": record_type, "value": json.dumps(value),
    }  # fmt: skip


def test_topics_of_an_ingest_are_those_of_commits_and_subscriptions(tmp_path: Path) -> None:
    subscription = {"subscription": {"topics": ["classic"]}}
    sources = {"sourceTopics": ["streams"], "sourceTopicRegex": [], "repartitionSourceTopics": [{"name": "between"}]}
    values = [
        (
            OffsetsRecordType.GROUP_METADATA,
            {"protocolType": "consumer", "protocol": "range", "members": [subscription]},
        ),
        (OffsetsRecordType.CONSUMER_GROUP_MEMBER_METADATA, {"subscribedTopicNames": ["consumer"]}),
        (OffsetsRecordType.CONSUMER_GROUP_REGULAR_EXPRESSION, {"topics": ["pattern"]}),
        (OffsetsRecordType.STREAMS_GROUP_TOPOLOGY, {"subtopologies": [sources]}),
        (OffsetsRecordType.SHARE_GROUP_STATE_PARTITION_METADATA, {"initializedTopics": [{"topicName": "share"}]}),
        (OffsetsRecordType.CONSUMER_GROUP_METADATA, {"epoch": 1}),
    ]
    lake = small_lake(
        tmp_path / "lake",
        offset_commits=[commit(1, 3, topic="before"), commit(2, 3, topic="committed", ingest_run=2)],
        group_records=[record_of(*typed, log_offset=number) for number, typed in enumerate(values, 3)],
        offsets=[{"group_id": "g", "topic": "stored", "partition": 0, "committed_offset": 1, "log_offset": 1}],
        groups=[
            {"group_id": "g", "member_count": 1, "subscribed_topics": ["subscribed"]},
            {"group_id": "left", "subscribed_topics": ["former"]},
            {"group_id": "s", "group_type": "share", "member_count": 1, "subscribed_topics": ["shared"]},
        ],
    )
    topics = {"committed", "classic", "consumer", "pattern", "streams", "between", "share"}
    assert log_ends.read_topics(lake, 2) == topics
    assert log_ends.known_topics(lake) == {"stored", "subscribed"}


def test_the_newest_ingest_is_found_by_statistics(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    assert newest_asked(lake) is None
    for run in (1, 2):
        log_ends.record(lake, run, [["t", 0, 0, run, 1000 * run]], 1000 * run)
    for file in (tmp_path / "lake" / "log_ends").glob("*.parquet"):
        file.unlink()
    assert newest_asked(lake) == 2


@pytest.mark.usefixtures("frequent_records")
def test_lag_reads_only_the_newest_files(tmp_path: Path) -> None:
    """The oldest files are gone from the disk: a query that opens one of them fails."""
    recent = [commit(n, 80 + n, commit_timestamp=STEP_MS * 18 + n, ingest_run=19) for n in range(3)]
    lake = small_lake(tmp_path / "lake", offset_commits=recent)
    for run in range(1, 21):
        log_ends.record(lake, run, [["t", 0, 0, 5 * run, STEP_MS * run], ["t", 1, 0, 5, STEP_MS * run]], STEP_MS * run)
    expected = lag_of_partitions(lake)
    old = lake.query("SELECT max(complete_run) AS run FROM log_ends WHERE asked_timestamp <= 14000")["run"][0].as_py()
    assert old > 1
    for file in active_files(lake, "log_ends"):
        if file["max.ingest_run"] < old:
            (lake.table_location("log_ends").path / file["path"]).unlink()
    assert lag_of_partitions(lake).equals(expected)
    assert lag_over_time(lake, "g").num_rows == 2
    assert newest_ends(lake).num_rows == 2
    log_ends.record(lake, 21, [["t", 0, 0, 105, STEP_MS * 21]], STEP_MS * 21)
