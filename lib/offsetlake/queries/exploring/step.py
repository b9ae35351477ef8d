"""One change of an offset: the records around it, who made it, what decided it, and the group at that time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import NotInLake
from offsetlake.lake.lake import Lake
from offsetlake.queries.exploring.changes import KINDS, Changes, classified, rows_of
from offsetlake.queries.exploring.group_state import group_before
from offsetlake.queries.exploring.keys import Key
from offsetlake.queries.exploring.steps import NONE, IntegerColumn, OffsetSteps, key_steps
from offsetlake.queries.history.key_history import DETAILS
from offsetlake.queries.questions import key_history
from offsetlake.queries.selection import check_committed

Row = Mapping[str, Any]

_MAX_MEMBERS = 50
_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True)
class OffsetStep:
    """A record of one offset and what is known about it.

    | Field       | Description |
    |-------------|-------------|
    | record      | the record: a row of `questions.history` |
    | change      | the row of the view `changes`; None if the record never took effect |
    | before      | the record whose offset was in force before: a row of `questions.history`; None if there is none |
    | after       | the next record that took effect, likewise |
    | run         | the run of offsetlake that decided it: a row of `runs`; None if none did |
    | group       | the group before the record, a row of `groups`; None if it did not exist |
    | members     | its members at that time, rows of `group_members`, at most 50 |
    | rebalance   | the newest record of a generation or epoch before: log_offset, log_timestamp; None without one |
    | caught_up   | when the offset reached the former value again: log_offset, effective_timestamp; None if not |
    """

    record: Row
    change: Row | None
    before: Row | None
    after: Row | None
    run: Row | None
    group: Row | None
    members: Sequence[Row]
    rebalance: Row | None
    caught_up: Row | None


def step(
    lake: Lake,
    group_id: str,
    topic: str,
    partition: int,
    log_partition: int,
    log_offset: int,
    changes: Changes[IntegerColumn] | None = None,
) -> OffsetStep:
    """Return a step of an offset; raise NotInLake if there is no such record of this group, topic and partition.

    `changes` are those of the partition, by default read from history.
    """
    key = Key(group_id, topic, partition)
    found: Changes[IntegerColumn] = changes or classified(lake, key, key_steps(lake, key))
    every = found.steps
    index, change, around = every.index(log_partition, log_offset), None, dict[str, int]()
    if index is not None:
        (change,) = rows_of(key, found.at(np.array([index])))
        around = _around(every, index)
    rows = _records(lake, key, log_partition, sorted({*around.values(), log_offset}), found)
    if log_offset not in rows:
        check_committed(lake, group_id, topic, partition)
        raise NotInLake(
            f"no record of group {group_id}, topic {topic}, partition {partition} is at log position "
            f"{log_partition}:{log_offset}, as far as the lake {lake.location} has read its log"
        )
    group, members, rebalance = group_before(lake, group_id, log_partition, log_offset)
    run = None
    if change and change["run_id"] is not None:
        run = next(iter(lake.query(f"SELECT * FROM runs WHERE run_id = {change['run_id']}", "runs").to_pylist()), None)  # noqa: S608
    return OffsetStep(
        rows[log_offset], change, rows.get(around.get("before")), rows.get(around.get("after")),
        run, group, members[:_MAX_MEMBERS], rebalance, None if index is None else _caught_up(every, index),
    )  # fmt: skip


def _around(steps: OffsetSteps[IntegerColumn], index: int) -> dict[str, int]:
    """Return the log offsets of the steps before and after one; steps of an offset are in the order of the log."""
    rows = steps.at(np.arange(index, min(index + 2, len(steps.new))))
    around = {"before": rows.old_log_offset[0], "after": NONE}
    if rows.log_partition[-1] == rows.log_partition[0] and rows.old_log_offset[-1] == rows.log_offset[0]:
        around["after"] = rows.log_offset[-1]
    return {name: int(log_offset) for name, log_offset in around.items() if log_offset != NONE}


def _records(
    lake: Lake, key: Key, log_partition: int, numbers: Sequence[int], changes: Changes[IntegerColumn]
) -> dict[int | None, Row]:
    """Return rows of `questions.history` by log offset; only that of the first record lacks what was before it."""
    span = f"log_partition = {log_partition} AND log_offset BETWEEN {min(numbers)} AND {max(numbers)}"
    source = key_history(lake, key.group_id, key.topic or "", key.partition or 0)
    rows, _ = source.described(source.records(span, DETAILS), with_resets=False)
    chosen = source.completed(rows.filter(pc.is_in(rows["log_offset"], pa.array(numbers))))
    return {row["log_offset"]: {**row, "event": _event(row, changes)} for row in chosen.to_pylist()}


def _event(row: Row, changes: Changes[IntegerColumn]) -> str:
    """Return the event of a row, of which it is not known yet whether it is a reset."""
    index = changes.steps.index(row["log_partition"], row["log_offset"]) if row["event"] == "commit" else None
    is_reset = index is not None and KINDS[changes.at(np.array([index])).kinds[0]] == "reset"
    return "reset" if is_reset else str(row["event"])


def _caught_up(steps: OffsetSteps[IntegerColumn], index: int) -> Row | None:
    """Return when an offset that was set back reached its former value again."""
    row = slice(index, index + 1)
    (partition,), (old,), (new,) = steps.log_partition[row], steps.old[row], steps.new[row]
    if NONE in (old, new) or new >= old:
        return None
    for start in range(index + 1, len(steps.new), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        reached = np.flatnonzero((steps.log_partition[rows] == partition) & (steps.new[rows] >= old))
        if len(reached):
            found: list[Row] = steps.at(start + reached[:1]).rows().to_pylist()
            return {name: found[0][name] for name in ("log_offset", "effective_timestamp")}
    return None
