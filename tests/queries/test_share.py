"""`offsetlake share`: share partitions now and at an instant, their topics and lag, beside rows computed by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from offsetlake.errors import BadRequest, LakeUnusable
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.compact.job import compact
from offsetlake.queries.share import share_batches, share_partitions
from support.e2e.in_process import InProcess
from support.queries.lakes import Row, end, small_lake

ORDERS, OTHER = "0UpezRseR2unUk_C-KbOfg", "1UpezRseR2unUk_C-KbOfg"


def batch(first: int, last: int, state: int, count: int) -> Row:
    return {"first_offset": first, "last_offset": last, "delivery_state": state, "delivery_count": count}


def snapshot(group_id: str, topic_id: str, log_offset: int, start: int, *batches: Row, **more: Any) -> Row:
    return {
        "group_id": group_id, "topic_id": topic_id, "partition": 0, "log_offset": log_offset, "kind": "snapshot",
        "log_timestamp": 1_000 * log_offset, "snapshot_epoch": 1, "state_epoch": 1, "leader_epoch": 0,
        "start_offset": start, "create_timestamp": 1, "write_timestamp": 1, "state_batches": [*batches], **more,
    }  # fmt: skip


def update(row: Row, log_offset: int, start: int, *batches: Row, **more: Any) -> Row:
    own = {"log_offset": log_offset, "log_timestamp": 1_000 * log_offset, "kind": "update", "start_offset": start}
    return {**row, **own, "state_batches": [*batches], "state_epoch": None, **more}


FIRST = snapshot("mail-a", ORDERS, 1, 10, batch(10, 19, 2, 1))
SECOND = snapshot("mail-b", OTHER, 2, -1)
THIRD = update(FIRST, 3, 15, batch(20, 24, 0, 2), batch(25, 25, 4, 5), delivery_complete_count=7)
GONE = {**{name: FIRST[name] for name in ("topic_id", "partition")}, "group_id": "mail-c", "kind": "tombstone"}
DELETED = [snapshot("mail-c", ORDERS, 4, 0), {**GONE, "log_offset": 5, "log_timestamp": 5_000}]
TOPICS = {
    "initializingTopics": [],
    "initializedTopics": [{"topicId": ORDERS, "topicName": "orders", "partitions": [0]}],
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    named = {"group_id": "mail-a", "record_type": 15, "kind": "value", "value": json.dumps(TOPICS), "log_offset": 1}
    made = small_lake(
        tmp_path_factory.mktemp("share") / "lake",
        share_state_records=[FIRST, SECOND, THIRD, *DELETED],
        group_records=[{**named, "record_name": "ShareGroupStatePartitionMetadata", "key": '{"groupId":"mail-a"}'}],
        log_ends=[end(1, 40, topic="orders"), end(3, 60, topic="orders"), end(3, 7, topic="unnamed")],
        runs=[{"run_id": 1, "job": "ingest", "started_at": 1, "finished_at": 2}],
    )
    lake = Lake.create(made.location.path)
    compact(InProcess, lake, lambda _: None)  # type: ignore[arg-type]
    return lake


def shown(lake: Lake, **asked: Any) -> list[tuple[Any, ...]]:
    names = ("group_id", "topic", "start_offset", "end_offset", "in_flight_records", "log_end_offset", "lag")
    return [tuple(row[name] for name in names) for row in share_partitions(lake, **asked).to_pylist()]


NOW_A = ("mail-a", "orders", 15, 26, 11, 60, 38)
NOW_B = ("mail-b", None, None, None, None, None, None)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, [NOW_A, NOW_B]),
        ({"pattern": "*-b"}, [NOW_B]),
        ({"topic": "orders"}, [NOW_A]),
        ({"topic": OTHER, "partition": 0}, [NOW_B]),
        # Without a count of completed records, those in batches are counted: 10 of 30.
        ({"instant_ms": 1_999}, [("mail-a", "orders", 10, 20, 10, 40, 20)]),
        ({"instant_ms": 4_500, "pattern": "mail-c"}, [("mail-c", "orders", 0, 0, 0, 60, 60)]),
        ({"instant_ms": 5_000}, [NOW_A, NOW_B]),
    ],
)
def test_share_partitions(lake: Lake, asked: dict[str, Any], expected: list[tuple[Any, ...]]) -> None:
    assert shown(lake, **asked) == expected


def test_at_the_end_of_history_the_rows_are_those_of_the_table(lake: Lake) -> None:
    assert share_partitions(lake, instant_ms=2**50).to_pylist() == share_partitions(lake).to_pylist()


def test_counts_of_records(lake: Lake) -> None:
    (row,) = share_partitions(lake, "mail-a").to_pylist()
    names = ("available_records", "acknowledged_records", "archived_records", "deliveries", "redelivered_records")
    assert [row[name] for name in names] == [5, 5, 1, 5 * 1 + 5 * 2 + 1 * 5, 6]
    assert row["max_delivery_count"] == 5


def test_batches(lake: Lake) -> None:
    rows = share_batches(share_partitions(lake)).to_pylist()
    assert [tuple(row.values())[4:] for row in rows] == [
        (15, 19, "acknowledged", 1), (20, 24, "available", 2), (25, 25, "archived", 5),
    ]  # fmt: skip
    assert {(row["group_id"], row["topic"], row["topic_id"]) for row in rows} == {("mail-a", "orders", ORDERS)}


@pytest.mark.parametrize("asked", [{"pattern": "x*"}, {"topic": "unnamed"}, {"partition": 7}, {"instant_ms": 5}])
def test_what_does_not_exist_is_an_error(lake: Lake, asked: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"no share partition matches|history begins"):
        share_partitions(lake, **asked)


def test_lake_of_an_older_version_is_refused(tmp_path: Path) -> None:
    made = small_lake(tmp_path / "lake", share_state_records=[FIRST])
    (tmp_path / "lake" / "offsetlake.json").write_text('{"version": 7}')
    with pytest.raises(LakeUnusable, match="an older offsetlake made the lake"):
        share_partitions(Lake.open(made.location.path))


def test_archived_records_at_the_limit_of_deliveries(tmp_path: Path) -> None:
    small_lake(
        tmp_path / "lake",
        share_state_records=[
            snapshot("none", ORDERS, 1, 0),
            snapshot("some", ORDERS, 2, 0, batch(0, 2, 4, 4), batch(3, 6, 4, 5), batch(7, 7, 2, 5), batch(8, 9, 4, 6)),
        ],
        runs=[{"run_id": 1, "job": "ingest", "started_at": 1, "finished_at": 2}],
    )
    made = Lake.create(tmp_path / "lake")
    compact(InProcess, made, lambda _: None)  # type: ignore[arg-type]
    rows = share_partitions(made).to_pylist()
    assert [(row["group_id"], row["archived_records"], row["archived_at_limit"]) for row in rows] == [
        ("none", 0, 0), ("some", 9, 6),
    ]  # fmt: skip


def test_lag_is_unknown_if_the_start_offset_is_beyond_the_log_end(tmp_path: Path) -> None:
    """As after the topic was deleted and created again."""
    value = {"group_id": "mail-a", "record_type": 15, "kind": "value", "value": json.dumps(TOPICS), "log_offset": 1}
    lake = small_lake(
        tmp_path / "lake",
        share_partitions=[{"topic_id": ORDERS, "partition": 0, "start_offset": 10, "log_offset": 1}],
        group_records=[{**value, "record_name": "ShareGroupStatePartitionMetadata"}],
        log_ends=[end(1, 4, topic="orders")],
    )
    assert [(row["log_end_offset"], row["lag"]) for row in share_partitions(lake).to_pylist()] == [(4, None)]
