"""One step of an offset: the records around it, its author, its decision, and the group at that time."""

import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.queries import questions
from offsetlake.queries.exploring import step as step_module
from offsetlake.queries.exploring.changes import classified
from offsetlake.queries.exploring.group_state import expiry, group_at, group_now
from offsetlake.queries.exploring.keys import Key
from offsetlake.queries.exploring.packed import packed
from offsetlake.queries.exploring.step import step
from offsetlake.queries.exploring.steps import key_steps
from offsetlake.rules.policy import Override, RetentionPolicy
from support.queries.lakes import commit, marker, small_lake, tombstone

MEMBER = {
    "memberId": "consumer-1", "groupInstanceId": None, "clientId": "app", "clientHost": "/10.0.0.1",
    "rebalanceTimeout": 1, "sessionTimeout": 1, "subscription": None, "assignment": None,
}  # fmt: skip


def generation(log_offset: int, members: int, number: int) -> dict[str, object]:
    value = {
        "version": "3",
        "data": {
            "protocolType": "consumer", "generation": number, "protocol": "range", "leader": None,
            "currentStateTimestamp": log_offset, "members": [MEMBER] * members,
        },
    }  # fmt: skip
    key = {"version": "2", "data": {"group": "g"}}
    return {
        "group_id": "g", "record_name": "GroupMetadata", "kind": "value", "record_type": 2, "log_offset": log_offset,
        "log_timestamp": log_offset, "key": json.dumps(key["data"]), "value": json.dumps(value["data"]),
    }  # fmt: skip


def test_a_step_has_the_records_around_it_and_when_it_was_caught_up(tmp_path: Path) -> None:
    rows = [commit(1, 10), commit(2, 50), commit(3, 99, producer_id=8), commit(5, 20), commit(7, 45), commit(9, 50)]
    events = [{"log_offset": 5, "last_log_offset": 6, "client_id": "tool", "address": "10.0.0.8:1"}]
    records = [generation(0, 0, 1), generation(4, 1, 2), generation(8, 0, 3)]
    lake = small_lake(
        tmp_path, offset_commits=rows, transaction_markers=[marker(6, "ABORT", 8)], audit_events=events,
        group_records=records,
    )  # fmt: skip
    found = step(lake, "g", "t", 0, 0, 5)
    assert found.change is not None
    assert (found.change["change"], found.change["old_offset"], found.change["new_offset"]) == ("rewind", 50, 20)
    assert (found.record["principal"], found.record["client_id"]) == ("User:alice", "tool")
    assert found.before is not None
    assert (found.before["log_offset"], found.before["committed_offset"]) == (2, 50)
    assert found.after is not None
    assert (found.after["log_offset"], found.after["previous_offset"]) == (7, 20)
    assert found.caught_up == {"log_offset": 9, "effective_timestamp": 9}
    assert found.rebalance == {"log_offset": 4, "log_timestamp": 4}
    assert found.group is not None
    assert (found.group["state"], found.group["generation"]) == ("Stable", 2)
    assert [member["client_id"] for member in found.members] == ["app"]


def test_a_record_without_an_audit_event_is_by_whoever_requested_the_run_that_wrote_it(tmp_path: Path) -> None:
    rows = [commit(1, 10), commit(4, 3), commit(5, 9), tombstone(6), commit(7, 8), tombstone(8)]
    key = {"group_id": "g", "topic": "t", "partition": 0}
    set_by = {**key, "outcome": "done", "strategy": "to_offset", "judged_offset": 1}
    deleted_by = {**key, "outcome": "emitted", "judged_offset": 1}
    lake = small_lake(
        tmp_path, offset_commits=rows, audit_events=[{"log_offset": 5, "last_log_offset": 5}],
        alterations=[
            {**set_by, "run_id": 6, "log_offset": 4}, {**set_by, "run_id": 7, "log_offset": 5},
            {**set_by, "run_id": 9, "log_offset": 7},
        ],
        tombstones=[
            {**deleted_by, "run_id": 8, "rule": "cleanup", "log_offset": 6},
            {**deleted_by, "run_id": 10, "rule": "commit_age", "log_offset": 8},
        ],
        runs=[
            {"run_id": run_id, "job": "emit", "started_at": 4, "finished_at": 4, "notes": notes}
            for run_id, notes in enumerate((["a note", "requested by os:bob"],) * 3 + ([], []), start=6)
        ],
    )  # fmt: skip
    names = {row["log_offset"]: row["principal"] for row in questions.history(lake, "g", "t", 0).to_pylist()}
    assert names == {1: None, 4: "os:bob", 5: "User:alice", 6: "os:bob", 7: None, 8: None}
    assert step(lake, "g", "t", 0, 0, 4).record["principal"] == "os:bob"


def test_a_record_without_effect_and_one_that_a_run_decided(tmp_path: Path) -> None:
    rows = [commit(1, 10), commit(2, 99, producer_id=8), commit(4, 3), tombstone(5)]
    done = {
        "run_id": 6, "outcome": "done", "strategy": "to_offset", "group_id": "g", "topic": "t", "partition": 0,
        "judged_offset": 1, "previous_offset": 10, "committed_offset": 3, "log_offset": 4, "evidence": "offset 3",
    }  # fmt: skip
    runs = [{"run_id": 6, "job": "reset", "started_at": 4, "finished_at": 4}]
    lake = small_lake(
        tmp_path, offset_commits=rows, transaction_markers=[marker(3, "ABORT", 8)], alterations=[done], runs=runs
    )
    aborted = step(lake, "g", "t", 0, 0, 2)
    assert (aborted.change, aborted.record["outcome"], aborted.group) == (None, "aborted", None)
    decided = step(lake, "g", "t", 0, 0, 4)
    assert decided.change is not None
    assert (decided.change["change"], decided.change["decision"], decided.change["evidence"]) == (
        "reset", "to_offset", "offset 3",
    )  # fmt: skip
    assert decided.run is not None
    assert (decided.run["job"], decided.caught_up) == ("reset", None)
    deleted = step(lake, "g", "t", 0, 0, 5)
    assert deleted.change is not None
    assert (deleted.change["change"], deleted.after, deleted.change["old_offset"]) == ("delete", None, 3)
    with pytest.raises(BadRequest, match="no record of group g, topic t, partition 0 is at log position 0:77"):
        step(lake, "g", "t", 0, 0, 77)


def test_a_group_at_an_instant(tmp_path: Path) -> None:
    records = [generation(10, 1, 1), generation(20, 0, 2)]
    lake = small_lake(tmp_path, offset_commits=[commit(1, 1)], group_records=records)
    found = [group_at(lake, "g", instant) for instant in (5, 10, 25)]
    assert [(group["state"], len(members)) if group else None for group, members in found] == [
        None, ("Stable", 1), ("Empty", 0),
    ]  # fmt: skip
    assert group_now(lake, "g") == (None, [])


def test_when_offsets_expire(tmp_path: Path) -> None:
    keys = [
        {"group_id": "g", "topic": f"t{n}", "partition": 0, "committed_offset": 1, "log_offset": n} for n in range(3)
    ]
    offsets = [{**keys[0]}, {**keys[1], "expire_timestamp": 77}, {**keys[2], "commit_timestamp": 5}]
    policy = RetentionPolicy(1_000, (Override("g", "t2", 3_000),))
    group = {
        "group_id": "g", "group_type": "consumer", "state": "Stable", "protocol_type": "consumer",
        "subscription": "known", "subscribed_topics": ["t0"],
    }  # fmt: skip
    lake = small_lake(tmp_path, offsets=[*offsets, {**keys[0], "group_id": "other"}], groups=[group])
    found = expiry(lake, questions.offsets(lake, "g"), group_now(lake, "g")[0], policy)
    assert [(row["kept_by"], row["clock"], row["expires_timestamp"]) for row in found.to_pylist()] == [
        ("subscribed", "commit_timestamp", None),
        (None, "expire_timestamp", 77),
        (None, "commit_timestamp", 3_005),
    ]


def test_what_keeps_offsets_is_as_in_the_view(tmp_path: Path) -> None:
    known = {"subscription": "known", "subscribed_topics": ["t0"]}
    classic = {"group_type": "classic", "protocol_type": "consumer", **known}
    groups = [
        {**classic, "group_id": "classic-empty", "state": "Empty", "state_timestamp": 50},
        {**classic, "group_id": "classic-rebalancing", "state": "PreparingRebalance"},
        {**classic, "group_id": "classic-stable", "state": "Stable"},
        {"group_id": "simple", "group_type": "classic", "protocol_type": None, "state": "Empty"},
        {**known, "group_id": "consumer", "group_type": "consumer", "protocol_type": "consumer", "state": "Stable"},
        {"group_id": "everything", "group_type": "consumer", "state": "Stable", "subscription": "everything"},
        {"group_id": "share", "group_type": "share", "state": "Empty"},
    ]
    names = [*(str(group["group_id"]) for group in groups), "none"]
    offsets = [
        {"group_id": name, "topic": f"t{n}", "partition": n, "committed_offset": 1, "log_offset": n, **times}
        for name in names
        for n, times in enumerate(({}, {"commit_timestamp": 10}, {"expire_timestamp": 7}))
    ]
    pending = [
        {"group_id": name, "topic": "t1", "partition": 1, "log_offset": 9, "commit_id": 1, "commit_size": 2}
        for name in names[::2]
    ]
    lake = small_lake(tmp_path, offsets=offsets, groups=groups, pending_offsets=pending)
    view = lake.query("SELECT * FROM retention_clocks").to_pylist()
    expected = {
        (row["group_id"], row["topic"]): (
            row["kept_by"], row["clock"],
            None if row["kept_by"] else row["clock_timestamp"] + (0 if row["clock"] == "expire_timestamp" else 1_000),
        )
        for row in view
    }  # fmt: skip
    found = {
        (name, row["topic"]): (row["kept_by"], row["clock"], row["expires_timestamp"])
        for name in names
        for row in expiry(
            lake, questions.offsets(lake, name), group_now(lake, name)[0], RetentionPolicy(1_000)
        ).to_pylist()
    }
    assert found == expected
    assert {kept for kept, _, _ in found.values()} == {
        None, "no_group", "share_group", "active_group", "subscribed", "pending_transaction",
    }  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("is_packed", [True, False])
def test_steps_among_many_have_their_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_packed: bool
) -> None:
    monkeypatch.setattr(step_module, "_ROWS_AT_ONCE", 7)
    random = Random(3)
    values = [1000 + n + random.choice([0] * 9 + [-40]) for n in range(200)]
    lake = small_lake(tmp_path, offset_commits=[commit(3 * n, value) for n, value in enumerate(values)])
    changes = classified(lake, Key("g", "t", 0), key_steps(lake, Key("g", "t", 0)))
    for n in (0, *(n for n in range(1, 200) if values[n] < values[n - 1]), 199):
        found = step(lake, "g", "t", 0, 0, 3 * n, packed(changes) if is_packed else changes)
        around = [None if row is None else row["log_offset"] for row in (found.before, found.after)]
        assert around == [3 * n - 3 if n else None, 3 * n + 3 if n < 199 else None]
        later = (3 * m for m in range(n + 1, 200) if n and values[m] >= values[n - 1])
        reached = next(later, None) if n and values[n] < values[n - 1] else None
        assert (None if found.caught_up is None else found.caught_up["log_offset"]) == reached


def test_a_step_reads_the_records_of_its_group_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [generation(0, 1, 1), {**generation(2, 0, 2), "kind": "tombstone", "value": None}, generation(4, 0, 3)]
    lake = small_lake(tmp_path, offset_commits=[commit(1, 10), commit(3, 20)], group_records=records)
    key = Key("g", "t", 0)
    changes, original, reads = classified(lake, key, key_steps(lake, key)), Lake.query, list[str]()

    def counting(opened: Lake, sql: str, *tables: str, **versions: int) -> pa.Table:
        reads.extend(tables)
        return original(opened, sql, *tables, **versions)

    monkeypatch.setattr(Lake, "query", counting)
    found = step(lake, "g", "t", 0, 0, 3, changes)
    assert (found.rebalance, found.group) == ({"log_offset": 0, "log_timestamp": 0}, None)
    assert reads.count("group_records") == 1
