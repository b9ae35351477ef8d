"""Plans of `reset --share` over random share partitions, compared with rows that are looked up one by one."""

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from offsetlake.lake.files import table_schema
from offsetlake.pipeline.changes import share_groups
from offsetlake.pipeline.changes.reset import Reset
from offsetlake.pipeline.changes.share_groups import reset_share_group, share_as_of
from offsetlake.queries import share
from offsetlake.rules import strategies

GROUPS = ("g", "other")
TOPICS = {"id-1": "orders", "id-2": "orders", "id-3": "payments"}  # orders was created twice; id-4 has no name
ENDS = {("orders", 0): 900, ("payments", 1): 50}
TARGET = 7


class StubLake:
    """A lake whose tables have the given share partitions and the names of TOPICS."""

    location = "nowhere"

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = pa.Table.from_pylist(rows, schema=table_schema("share_partitions"))

    def check_up_to_date(self) -> None:
        """Accept the lake."""

    def query(self, sql: str, *_tables: str) -> pa.Table:
        """Return the rows of a table."""
        named = [{"topicId": id_, "topicName": name} for id_, name in TOPICS.items()]
        names = pa.table({"value": [json.dumps({"initializedTopics": named})]})
        return self._rows if "share_partitions" in sql else names


class StubGroups:
    """One share group; the second of GROUPS has members."""

    def __init__(self, name: str) -> None:
        self.found = {name: {"group_type": "share", "log_partition": GROUPS.index(name) + 3}}

    def unknown(self) -> dict[str, str]:
        """Return which groups quarantined records leave unknown."""
        return {}

    def members(self) -> dict[str, str]:
        """Return why groups cannot be changed."""
        return {"other": "it has members"}


def random_rows(rng: random.Random) -> list[dict[str, Any]]:
    keys = [(group, topic, number) for group in GROUPS for topic in (*TOPICS, "id-4") for number in range(3)]
    rows = []
    for at, (group, topic_id, number) in enumerate(rng.sample(keys, rng.randrange(6, len(keys)))):
        counts = {f"{state}_records": rng.choice((0, 0, 1500)) for state in ("available", "acknowledged", "archived")}
        key = {"group_id": group, "topic_id": topic_id, "partition": number, "log_partition": 0, "log_offset": at}
        offsets = {"start_offset": rng.choice((None, TARGET, 40)), "delivery_complete_count": rng.choice((None, 2))}
        rows.append({**key, **counts, **offsets, "log_timestamp": rng.randrange(1000) * 100 + at, "state_batches": []})
    return rows


def expected_plan(rows: list[dict[str, Any]], group: str) -> dict[tuple[str, int], tuple[Any, ...]]:
    newest: dict[tuple[str, int], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["log_timestamp"]):
        if row["group_id"] == group:
            newest[TOPICS.get(row["topic_id"], row["topic_id"]), row["partition"]] = row
    plan: dict[tuple[str, int], tuple[Any, ...]] = {}
    for key, row in newest.items():
        lost = sum(row[f"{state}_records"] for state in ("available", "acknowledged", "archived"))
        same = row["start_offset"] == TARGET
        reason = "it has members" if group == "other" else "it is a share group"
        note = "not clamped: the range of the log is unknown"
        outcome = "unchanged" if same else "planned"
        plan[key] = row["topic_id"], row["log_offset"], row["start_offset"], outcome, reason, note, bool(lost)
    return plan


@pytest.fixture(autouse=True)
def _no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = [{"topic": topic, "partition": number, "end_offset": end} for (topic, number), end in ENDS.items()]
    monkeypatch.setattr(share, "newest_asked", lambda *_: 1)
    monkeypatch.setattr(share, "ends_asked_by", lambda *_: pa.Table.from_pylist(recorded))
    monkeypatch.setattr(share_groups, "groups_like", lambda _lake, name: StubGroups(name))


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_has_the_newest_share_partition_of_each_name(seed: int) -> None:
    rows = random_rows(random.Random(seed))
    lake: Any = StubLake(rows)
    for group in GROUPS:
        expected = expected_plan(rows, group)
        if not expected:
            continue
        request = Reset(group, "to_offset", lambda table: strategies.to_offset(table, TARGET), {})
        names = "topic", "partition", "topic_id", "judged_offset", "previous_offset", "outcome", "reason", "note"
        plan = reset_share_group(lake, request, None, 0)
        assert {*plan["log_partition"].to_pylist()} == {GROUPS.index(group) + 3}
        found = {tuple(row[name] for name in names[:2]): row for row in plan.select(names).to_pylist()}
        for key, (*exact, reason, note, _) in expected.items():
            assert [found[key][name] for name in names[2:6]] == exact
            assert found[key]["reason"].startswith(reason)
            assert found[key]["note"] == note
        assert found.keys() == expected.keys()
        assert [*found] == sorted(found)


@pytest.mark.parametrize("seed", range(5))
def test_rows_have_the_name_of_the_topic_and_the_lag(seed: int) -> None:
    rows = random_rows(random.Random(seed))
    lake: Any = StubLake(rows)
    stored = {(row["group_id"], row["topic_id"], row["partition"]): row for row in rows}
    found = share.share_partitions(lake).to_pylist()
    assert len(found) == len(rows)
    for row in found:
        name, source = TOPICS.get(row["topic_id"]), stored[row["group_id"], row["topic_id"], row["partition"]]
        end = ENDS.get((name or "", row["partition"]))
        complete = source["delivery_complete_count"]
        complete = source["acknowledged_records"] + source["archived_records"] if complete is None else complete
        start = source["start_offset"]
        lag = None if end is None or start is None else end - start - complete
        lag = None if lag is not None and lag < 0 else lag  # the start is beyond the end, or more is completed
        assert (row["topic"], row["log_end_offset"], row["lag"]) == (name, end, lag)


def test_a_topic_that_was_created_again_since_does_not_get_the_start_offset_of_the_former_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rows_at(instant_ms: int | None) -> pa.Table:
        ids = ("id-1", "id-3") if instant_ms == 1 else ("id-1", "id-2", "id-3")
        rows = [
            {"group_id": "g", "topic_id": id_, "partition": 0, "start_offset": 40 + (instant_ms or 5), "log_offset": 0,
             "log_timestamp": int(id_[-1]), "available_records": 0, "acknowledged_records": 0, "archived_records": 0}
            for id_ in ids
        ]  # fmt: skip
        schema = table_schema("share_partitions")
        topics = pa.array([TOPICS[id_] for id_ in ids])
        return pa.Table.from_pylist(rows, schema=schema).append_column("topic", topics)

    monkeypatch.setattr(share_groups, "share_groups_in_history", lambda _lake, name: {name: 3})
    monkeypatch.setattr(share_groups, "select_groups", lambda _lake, _places: StubGroups("g"))
    monkeypatch.setattr(share_groups, "share_partitions", lambda _lake, instant_ms=None: rows_at(instant_ms))
    lake: Any = StubLake([])
    plan = share_as_of(lake, "g", 1, {}, 0, through_cluster=True)
    assert plan is not None
    found = {row["topic"]: (row["topic_id"], row["committed_offset"], row["outcome"]) for row in plan.to_pylist()}
    assert found == {"orders": ("id-2", 45, "unchanged"), "payments": ("id-3", 41, "planned")}


def test_notes_count_the_delivery_states_that_are_discarded() -> None:
    key = {"group_id": "g", "topic_id": "id-3", "log_partition": 0, "state_batches": [], "start_offset": 40}
    counts = {"available_records": 1, "acknowledged_records": 1500, "archived_records": 0}
    rows = [key | counts | {"partition": 1}, key | dict.fromkeys(counts, 0) | {"partition": 0}]
    lake: Any = StubLake(rows)
    request = Reset("g", "to_current", strategies.to_current, {})
    plan = reset_share_group(lake, request, None, 0)
    assert plan["note"].to_pylist() == [None, None], "the start offsets do not change"
    scoped = Reset("g", "to_offset", _exactly_seven, {"payments": [1, 0]})
    notes = reset_share_group(lake, scoped, None, 0).sort_by("partition")["note"].to_pylist()
    assert notes == [None, "the delivery states of 1,501 records are discarded"]


def _exactly_seven(rows: pa.Table) -> pa.Table:
    computed = strategies.to_offset(rows, TARGET)
    none = pa.nulls(rows.num_rows, pa.string())
    return computed.set_column(computed.schema.get_field_index("note"), "note", none)
