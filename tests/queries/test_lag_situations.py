"""Lags of partitions without a commit, with deleted records, and of topics that lost records or were created again."""

import json
from pathlib import Path
from typing import Any

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.queries.lag import lag_by_group, lag_of_groups, lag_of_partitions, shown_lag
from offsetlake.queries.lag_over_time import lag_over_time
from support.command_line import Run
from support.queries.lakes import commit, end, small_lake

NUMBERS = ("committed_offset", "start_offset", "end_offset", "lag", "lag_at_most", "deleted_before_read")


def group(group_id: str, *topics: str, **others: Any) -> dict[str, Any]:
    """A row of `groups` of a group with members that are subscribed to topics."""
    subscribed = {"state": "Stable", "subscription": "known", "subscribed_topics": sorted(topics), "member_count": 1}
    return {"group_id": group_id, **subscribed, **others}


def member(group_id: str, name: str, *assigned: tuple[str, str, list[int]]) -> dict[str, Any]:
    """A row of `group_members`; the assignment has entries of a column, its value, and partitions."""
    entries = [{column: value, "partitions": partitions} for column, value, partitions in assigned]
    return {
        "group_id": group_id, "member_id": f"{name}-id", "client_id": name, "client_host": f"/{name}",
        "assignment": entries,
    }  # fmt: skip


def recorded(group_id: str) -> dict[str, Any]:
    """A row of `group_records`, by which a group is found."""
    return {
        "group_id": group_id, "log_offset": 99, "kind": "value", "record_name": "GroupMetadata", "value": "{}",
    }  # fmt: skip


def ends(run: int, topic: str, offsets: list[tuple[int, int]]) -> list[Any]:
    return [
        end(run, last, topic=topic, partition=number, start_offset=start, topic_id=f"id of {topic}")
        for number, (start, last) in enumerate(offsets)
    ]


def at(group_id: str, topic: str, partition: int, offset: int, log_offset: int, **others: Any) -> Any:
    return commit(log_offset, offset, group_id=group_id, topic=topic, partition=partition, **others)


TABLES: dict[str, list[Any]] = {
    "log_ends": [
        *ends(1, "t", [(0, 100), (0, 100), (0, 0), (100, 100), (50, 100)]),
        *ends(1, "u", [(0, 7), (2, 9)]),
    ],
    "offset_commits": [
        at("partly", "t", 0, 100, 1),
        at("shrunk", "t", 0, 1000, 2),
        at("shrunk", "t", 1, 40, 3),
        at("deleted", "t", 3, 40, 4),
        at("deleted", "t", 4, 20, 5),
        at("negative", "t", 0, -1, 6),
        at("no end", "v", 0, 5, 7),
        at("no end", "t", 0, 99, 8),
        at("empty", "t", 0, 100, 9),
        at("done", "t", 0, 100, 10),
    ],
    "groups": [
        group("partly", "t"),
        group("stuck", "u", group_type="consumer"),
        group("sharing", "u", group_type="share"),
        group("streaming", "u", group_type="streams", state="Reconciling"),
        group("unassigned", "u"),
        group("hidden", "v"),
        group("empty", "t"),
        group("left", state="Empty", member_count=0),
        group("connect", subscription="unknown"),
    ],
    "group_records": [recorded(name) for name in ("partly", "stuck", "streaming", "unassigned", "hidden", "empty")],
    "group_members": [
        member("partly", "a", ("topic", "t", [0, 1])),
        member("partly", "b", ("topic", "t", [2, 4])),
        member("stuck", "c", ("topic_id", "id of u", [0, 1])),
        member("sharing", "d", ("topic_id", "id of u", [0, 1])),
        member("streaming", "e", ("subtopology", "0", [0])),
        member("unassigned", "f"),
        member("hidden", "g", ("topic", "v", [0])),
        member("empty", "h", ("topic", "t", [0, 2])),
        {**member("connect", "i"), "assignment": None},
    ],
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return small_lake(tmp_path_factory.mktemp("lag") / "lake", **TABLES)


def partitions(lake: Lake, group_id: str) -> list[tuple[Any, ...]]:
    found = lag_of_partitions(lake, group_id).sort_by([("topic", "ascending"), ("partition", "ascending")]).to_pylist()
    return [(row["topic"], row["partition"], row["status"], *(row[name] for name in NUMBERS)) for row in found]


EXPECTED = {
    # Partition 3 is not assigned, but subscribed to; it is empty.
    "partly": [
        ("t", 0, "OK", 100, 0, 100, 0, 0, 0),
        ("t", 1, "NO_COMMIT", None, 0, 100, None, 100, 0),
        ("t", 2, "NO_COMMIT", None, 0, 0, 0, 0, 0),
        ("t", 3, "NO_COMMIT", None, 100, 100, 0, 0, 0),
        ("t", 4, "NO_COMMIT", None, 50, 100, None, 50, 0),
    ],
    "stuck": [("u", 0, "NO_COMMIT", None, 0, 7, None, 7, 0), ("u", 1, "NO_COMMIT", None, 2, 9, None, 7, 0)],
    "streaming": [("u", 0, "NO_COMMIT", None, 0, 7, None, 7, 0), ("u", 1, "NO_COMMIT", None, 2, 9, None, 7, 0)],
    "unassigned": [("u", 0, "NO_COMMIT", None, 0, 7, None, 7, 0), ("u", 1, "NO_COMMIT", None, 2, 9, None, 7, 0)],
    "hidden": [("v", 0, "NO_COMMIT", None, None, None, None, None, None)],
    "shrunk": [
        ("t", 0, "BEYOND_END", 1000, 0, 100, None, 100, 0),
        ("t", 1, "UNKNOWN", 40, 0, 100, 60, 60, 0),
    ],
    "deleted": [
        ("t", 3, "DELETED_BEFORE_READ", 40, 100, 100, 0, 0, 60),
        ("t", 4, "DELETED_BEFORE_READ", 20, 50, 100, 50, 50, 30),
    ],
    "negative": [("t", 0, "NO_COMMIT", -1, 0, 100, None, 100, 0)],
    "no end": [
        ("t", 0, "UNKNOWN", 99, 0, 100, 1, 1, 0),
        ("v", 0, "UNKNOWN", 5, None, None, None, None, None),
    ],
}  # fmt: skip


@pytest.mark.parametrize("group_id", EXPECTED)
def test_partitions_are_those_with_commits_and_those_of_members(lake: Lake, group_id: str) -> None:
    assert partitions(lake, group_id) == EXPECTED[group_id]


def test_totals_contain_partitions_without_a_known_lag(lake: Lake) -> None:
    names = (
        "status", "lag", "lag_at_most", "lag_unknown", "partitions", "not_ok", "no_commit", "deleted_before_read",
        "topic", "partition",
    )  # fmt: skip
    found = lag_by_group(lake).to_pylist()
    assert lag_of_groups(lag_of_partitions(lake)).to_pylist() == found
    assert {row["group_id"]: tuple(row[name] for name in names) for row in found} == {
        "shrunk": ("BEYOND_END", 60, 160, 1, 2, 1, 0, 0, "t", 0),
        "deleted": ("DELETED_BEFORE_READ", 50, 50, 0, 2, 2, 0, 90, "t", 4),
        "partly": ("NO_COMMIT", 0, 150, 2, 5, 2, 4, 0, "t", 1),
        "negative": ("NO_COMMIT", None, 100, 1, 1, 1, 1, 0, "t", 0),
        "stuck": ("NO_COMMIT", None, 14, 2, 2, 2, 2, 0, "u", 0),
        "streaming": ("NO_COMMIT", None, 14, 2, 2, 2, 2, 0, "u", 0),
        "unassigned": ("NO_COMMIT", None, 14, 2, 2, 2, 2, 0, "u", 0),
        "hidden": ("NO_COMMIT", None, None, 1, 1, 1, 1, None, "v", 0),
        "no end": ("UNKNOWN", 1, None, 1, 2, 0, 0, 0, "t", 0),
        "empty": ("NO_COMMIT", 0, 150, 2, 5, 2, 4, 0, "t", 1),
        "done": ("OK", 0, 0, 0, 1, 0, 0, 0, "t", 0),
    }


def test_owner_is_the_member_that_is_assigned_the_partition(lake: Lake) -> None:
    names = ("partition", "member_id", "client_id", "client_host")
    found = lag_of_partitions(lake, "partly").sort_by("partition").select(names).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (0, "a-id", "a", "/a"),
        (1, "a-id", "a", "/a"),
        (2, "b-id", "b", "/b"),
        (3, None, None, None),
        (4, "b-id", "b", "/b"),
    ]
    assert lag_of_partitions(lake, "stuck")["client_id"].to_pylist() == ["c", "c"]
    assert lag_of_partitions(lake, topic="u")["group_id"].to_pylist().count("stuck") == 2


def test_empty_partitions_without_a_commit_do_not_determine_the_status_of_a_group(tmp_path: Path) -> None:
    lake = small_lake(
        tmp_path / "lake",
        log_ends=ends(1, "t", [(0, 5), (0, 0)]),
        offset_commits=[at("some", "t", 0, 5, 1)],
        groups=[group("some", "t"), group("none", "w")],
        group_members=[member("some", "a", ("topic", "t", [0, 1])), member("none", "b", ("topic", "t", [1]))],
    )
    names = ("group_id", "status", "lag", "no_commit", "not_ok")
    assert [tuple(row[name] for name in names) for row in lag_by_group(lake).to_pylist()] == [
        ("some", "OK", 0, 1, 0),
        ("none", "NO_COMMIT", 0, 1, 0),
    ]


def test_groups_without_any_commit_are_listed_in_a_lake_without_commits(run: Run, tmp_path: Path) -> None:
    lake = small_lake(
        tmp_path / "lake",
        log_ends=ends(1, "u", [(0, 7)]),
        group_records=[recorded("stuck")],
        groups=[group("stuck", "u")],
        group_members=[member("stuck", "a", ("topic", "u", [0]))],
    )
    assert partitions(lake, "stuc*") == [("u", 0, "NO_COMMIT", None, 0, 7, None, 7, 0)]
    code, out, err = run("lag", "--lake", str(lake.location.path))
    assert code == 0
    assert "NO_COMMIT" in out
    assert "The lag of 1 of 1 partitions is unknown: they have no committed offset." in err


def test_notes_name_each_reason_for_an_unknown_lag(run: Run, lake: Lake) -> None:
    _, out, err = run("lag", "--lake", str(lake.location.path), "--partitions")
    assert "-900" not in out
    assert "The lag of 1 of 25 partitions is unknown: their committed offsets are beyond the log end." in err
    assert "The lag of 2 of 25 partitions is unknown: the last cycle did not read their log end offsets." in err
    assert "partitions is unknown: they have no committed offset." in err


@pytest.mark.parametrize(
    ("lag", "lag_at_most", "text"),
    [
        (5, 5, "5"),
        (0, 300, "0 to 300"),
        (None, 300, "0 to 300"),
        (5, None, "at least 5"),
        (None, None, "unknown"),
        (1200, 1200, "1,200"),
    ],
)
def test_lag_that_is_not_known_is_shown_with_its_bounds(lag: int | None, lag_at_most: int | None, text: str) -> None:
    assert shown_lag(lag, lag_at_most) == text


# --- membership at an earlier ingest ---


def joined(offset: int, run: int, *partitions: int) -> dict[str, Any]:
    """A record of the group `moving` with one member, to which these partitions of t are assigned."""
    assigned = {
        "memberId": "a-id", "clientId": "a", "clientHost": "/a", "sessionTimeout": 1,
        "subscription": {"topics": ["t"] if partitions else []},
        "assignment": {"assignedPartitions": [{"topic": "t", "partitions": [*partitions]}]},
    }  # fmt: skip
    value = {
        "protocolType": "consumer",
        "generation": run,
        "protocol": "range",
        "leader": "a-id",
        "members": [assigned],
    }
    return {
        "ingest_run": run, "log_offset": offset, "kind": "value", "record_name": "GroupMetadata", "group_id": "moving",
        "key": json.dumps({"group": "moving"}), "value": json.dumps(value),
    }  # fmt: skip


def test_members_are_those_of_the_ingest_that_recorded_the_log_ends(tmp_path: Path) -> None:
    """A later ingest, which could not read log end offsets, has read that the member left and joined again."""
    lake = small_lake(
        tmp_path / "lake",
        log_ends=[*ends(1, "t", [(0, 9)]), *ends(2, "t", [(0, 9), (0, 3)])],
        offset_commits=[at("moving", "t", 0, 9, 1, ingest_run=3)],
        group_records=[joined(2, 1, 0), joined(3, 2, 0, 1), joined(4, 3)],
        groups=[group("moving")],
        group_members=[member("moving", "a")],
    )
    expected = [("t", 0, "NO_COMMIT", None, 0, 9, None, 9, 0), ("t", 1, "NO_COMMIT", None, 0, 3, None, 3, 0)]
    assert partitions(lake, "moving") == expected
    assert partitions(lake, "*") == expected
    (row,) = lag_of_partitions(lake, now=1500).to_pylist()
    assert (row["partition"], row["status"], row["lag_at_most"], row["client_id"]) == (0, "NO_COMMIT", 9, "a")


def test_lag_over_time_contains_partitions_of_members(tmp_path: Path) -> None:
    """The group commits in ingests 2 and 4, and its member leaves in ingest 5; the topic is created again in 6."""
    lake = small_lake(
        tmp_path / "lake",
        log_ends=[
            *ends(1, "t", [(0, 9), (2, 2)]),
            *ends(2, "t", [(0, 9), (2, 3)]),
            *ends(3, "t", [(7, 9), (2, 3)]),
            *ends(4, "t", [(7, 12), (2, 4)]),
            *ends(5, "t", [(7, 12), (2, 4)]),
            *ends(6, "t", [(0, 1), (0, 0)]),
        ],
        offset_commits=[at("moving", "t", 0, 5, 3, ingest_run=2), at("moving", "t", 0, 9, 5, ingest_run=4)],
        group_records=[joined(2, 1, 0), joined(6, 5)],
    )
    names = ["ingest_run", "lag", "partitions", "lag_at_most", "lag_unknown", "no_commit", "deleted_before_read"]
    assert [tuple(row.values()) for row in lag_over_time(lake, "moving").select(names).to_pylist()] == [
        (1, 0, 2, 9, 1, 2, 0),
        (2, 4, 2, 5, 1, 1, 0),
        (3, 2, 2, 3, 1, 1, 2),
        (4, 3, 2, 5, 1, 1, 0),
        (5, 3, 1, 3, 0, 0, 0),
        (6, None, 1, 1, 1, 0, 0),
    ]


def test_lag_over_time_continues_in_the_log_partition_that_coordinates_the_group_now(tmp_path: Path) -> None:
    """Partitions were added to the log topic before ingest 2: the offset of t:1 is unknown to the new coordinator."""
    new = {"log_partition": 1, "ingest_run": 2}
    lake = small_lake(
        tmp_path / "lake",
        log_ends=[*ends(1, "t", [(0, 100), (0, 100)]), *ends(2, "t", [(0, 100), (0, 100)])],
        offset_commits=[
            *(at("moving", "t", number, 10, 1000 + number, ingest_run=1) for number in (0, 1)),
            at("moving", "t", 0, 60, 5, **new),
            at("moving", "t", 0, 20, 1010, ingest_run=2),
        ],
        group_records=[joined(900, 1, 0), {**joined(4, 2), "log_partition": 1}],
    )
    names = ["ingest_run", "lag", "partitions", "no_commit"]
    rows = [tuple(row.values()) for row in lag_over_time(lake, "moving").select(names).to_pylist()]
    assert rows == [(1, 180, 2, 0), (2, 40, 1, 0)]
