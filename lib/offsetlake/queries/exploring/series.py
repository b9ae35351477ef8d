"""The committed offset of a partition over time, beside log end and lag, in as many points as a chart can show."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.lake import Lake
from offsetlake.lake.log_ends import newest_asked, rows_until
from offsetlake.lake.sql.engine import quoted
from offsetlake.queries.exploring.changes import KINDS, Changes, Kinds, classified
from offsetlake.queries.exploring.keys import REBALANCES, Key
from offsetlake.queries.exploring.steps import NONE, IntegerColumn, OffsetSteps, key_steps, steps_in_portions
from offsetlake.queries.questions import key_history
from offsetlake.util.row_codes import Ints

MAX_BUCKETS = 600
MAX_MARKS = 300
DENSITY_BINS = 120
_OFFSET = ("topic", "partition")
_ENDS = ("asked_timestamp", "end_offset", "start_offset")
_CHANGES = ("effective_timestamp", "change", "old_offset", "new_offset", "log_partition", "log_offset")
_EMPTY = np.empty(0, np.int64)
_NEWEST_FIRST = [("effective_timestamp", "descending"), ("log_partition", "ascending"), ("log_offset", "descending")]
_RECORDS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class Series:
    """What a chart of a committed offset contains. All times are in ms since the epoch.

    | Field      | Description |
    |------------|-------------|
    | commits    | number of commits and tombstones that took effect, also those that `steps` omits |
    | steps      | columns of `OffsetSteps.take` (new_offset is null: deleted); in log order |
    | marks      | the same of changes other than commits, and change; principal, client_id: null = not recorded |
    | more_marks | number of such changes that `marks` omits: those with the smallest differences |
    | rebalances | times at which the group had a new generation or epoch, at most one for each bucket |
    | period     | the first and the last time of the period |
    | density    | numbers of commits and tombstones in DENSITY_BINS equal parts of the period |
    | ends       | columns asked_timestamp, end_offset, and lag at that time; null without an offset up to the log end |
    """

    commits: int
    steps: pa.Table
    marks: pa.Table
    more_marks: int
    rebalances: Ints
    ends: pa.Table
    period: tuple[int, int]
    density: Ints


def series(
    lake: Lake,
    group_id: str,
    topic: str,
    partition: int,
    from_ms: int | None = None,
    until_ms: int | None = None,
    changes: Changes[IntegerColumn] | None = None,
    ends: pa.Table | None = None,
) -> Series:
    """Return the offset of one partition over a period, by default all of history, in at most 4 * MAX_BUCKETS steps.

    Of each bucket of time the first, last, lowest and highest offsets are kept, and of the whole period the MAX_MARKS
    largest changes that are not plain commits, so regressions remain visible. The last step before the period is
    included. `changes` are those of the partition, and `ends` its `recorded_ends`, by default read from the lake.
    """
    key = Key(group_id, topic, partition)
    found = _coordinator_last(lake, key, changes or classified(lake, key, key_steps(lake, key)))
    ends = recorded_ends(lake, topic, partition) if ends is None else ends
    every, times, asked = found.steps, found.steps.time[:], ends["asked_timestamp"].to_numpy()
    is_timed = times != NONE
    last = max(times.max(initial=NONE), asked.max(initial=NONE))
    last = 0 if last == NONE else int(last)
    low = int(times.min(initial=last, where=is_timed)) if from_ms is None else from_ms
    high = last if until_ms is None else until_ms
    inside = is_timed & (times >= low) & (times <= high)
    before = np.flatnonzero(is_timed & (times < low))
    shown = np.flatnonzero(inside)
    span = slice(shown[0], shown[-1] + 1) if len(shown) else slice(0)
    times_shown = times[inside]
    kept = shown[_representatives(times_shown, every.new[span][inside[span]], low, high)]
    marks = np.flatnonzero((found.kinds != 0) & inside)
    largest = np.sort(marks[np.argsort(-_lengths(every, marks), kind="stable")[:MAX_MARKS]])
    chosen = np.unique(np.concatenate([before[-1:], kept, largest]))
    marked = every.at(largest).rows().append_column("change", _named(found.kinds[largest]))
    return Series(
        len(shown),
        every.at(chosen).rows(),
        _with_authors(lake, key, marked),
        len(marks) - len(largest),
        _rebalances(lake, Key(group_id), low, high),
        _with_lag(ends, every, times, low, high),
        (low, high),
        np.bincount((times_shown - low) * DENSITY_BINS // (high - low + 1), minlength=DENSITY_BINS),
    )


def _coordinator_last(lake: Lake, key: Key, changes: Changes[IntegerColumn]) -> Changes[IntegerColumn]:
    """Return changes of an offset, those in the log partition that coordinates its group after those in others."""
    partitions = key_history(lake, key.group_id, key.topic or "", key.partition or 0).partitions
    if len(partitions) < 2:
        return changes
    numbers = pa.array(changes.steps.log_partition[:], pa.int32())
    rank = pc.index_in(numbers, pa.array(partitions, pa.int32())).to_numpy()
    return changes.at(np.lexsort((changes.steps.log_offset[:], -rank)))


def notable_changes(
    lake: Lake,
    group_id: str,
    from_ms: int | None,
    until_ms: int | None,
    limit: int,
    changes: Changes[IntegerColumn] | None = None,
) -> tuple[pa.Table, int]:
    """Return the newest changes of a group other than commits in a period, and the number of all of them.

    The columns are topic and partition, and those of `Series.marks`. `changes` are those of the group, by default
    read from history.
    """
    key, parts, count = Key(group_id), [], 0
    portions = (classified(lake, key, steps) for steps in steps_in_portions(lake, key, _RECORDS_AT_ONCE))
    for portion in [changes] if changes else portions:
        notable = _notable(portion, from_ms, until_ms)
        parts.append(notable.sort_by(_NEWEST_FIRST).slice(0, limit))
        count += notable.num_rows
    rows = pa.concat_tables(parts).sort_by(_NEWEST_FIRST).slice(0, limit)
    return _with_authors(lake, key, rows), count


def _notable(changes: Changes[IntegerColumn], from_ms: int | None, until_ms: int | None) -> pa.Table:
    """Return the changes that are not plain commits in a period."""
    notable = np.flatnonzero(changes.kinds)
    times = changes.steps.time[notable]
    is_inside = np.ones(len(times), np.bool_)
    if from_ms is not None:
        is_inside &= times >= from_ms
    if until_ms is not None:
        is_inside &= (times <= until_ms) & (times != NONE)
    notable = notable[is_inside]
    chosen = changes.steps.at(notable)
    offsets = pa.table({
        "topic": pa.array([topic for topic, _ in chosen.offsets], pa.string()),
        "partition": pa.array([partition for _, partition in chosen.offsets], pa.int32()),
    }).take(pa.array(chosen.number))  # fmt: skip
    rows = chosen.rows().append_column("change", _named(changes.kinds[notable]))
    return pa.table({name: (rows if name in rows.column_names else offsets)[name] for name in (*_OFFSET, *_CHANGES)})


def _named(numbers: Kinds) -> pa.Array:
    return pa.array(KINDS).take(pa.array(numbers))


def _lengths(steps: OffsetSteps[IntegerColumn], numbers: Ints) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return how far the offset moved in some steps; infinitely far if it was deleted or had been."""
    old, new = steps.old[numbers], steps.new[numbers]
    return np.where((old == NONE) | (new == NONE), np.inf, np.abs(new.astype(float) - old.astype(float)))


def _representatives(times: Ints, values: Ints, low: int, high: int) -> Ints:
    """Return the indexes of the first, last, lowest and highest value of each bucket of time, in ascending order."""
    if len(times) <= 4 * MAX_BUCKETS:
        return np.arange(len(times))
    buckets = (times - low) * MAX_BUCKETS // (int(high) - int(low) + 1)
    order, by_value = np.argsort(buckets, kind="stable"), np.lexsort((values, buckets))
    counts = np.bincount(buckets)
    last = np.cumsum(counts[counts > 0]) - 1
    first = last - counts[counts > 0] + 1
    return np.unique(np.concatenate([order[first], order[last], by_value[first], by_value[last]]))


def _with_authors(lake: Lake, key: Key, changes: pa.Table) -> pa.Table:
    """Append to changes who made them, as far as audit events record it."""
    source = key_history(lake, key.group_id, key.topic or "", key.partition or 0)
    return source.with_authors(changes).drop_columns(["what", "address"])


def _rebalances(lake: Lake, group: Key, low: int, high: int) -> Ints:
    names = ", ".join(map(quoted, REBALANCES))
    period = f"log_timestamp BETWEEN {low} AND {high}"
    where = f"{group.placed(lake)} AND {group.condition} AND record_name IN ({names}) AND kind = 'value' AND {period}"
    records = lake.query(f"SELECT log_timestamp FROM group_records WHERE {where}", "group_records")  # noqa: S608
    times = np.sort(records["log_timestamp"].to_numpy())
    buckets = (times - low) * MAX_BUCKETS // (int(high) - int(low) + 1)
    kept: Ints = times[np.flatnonzero(np.diff(buckets, prepend=-1))]
    return kept


def recorded_ends(lake: Lake, topic: str, partition: int) -> pa.Table:
    """Return the recorded log start and end offsets of a partition, in the order of time."""
    run = newest_asked(lake) if "log_ends" in lake.tables() else None
    if run is None:
        return pa.table(dict.fromkeys(_ENDS, _EMPTY))
    ends = rows_until(lake, 0, run, [topic]).observed((*_ENDS, "partition")).filter(pc.field("partition") == partition)
    return ends.sort_by("asked_timestamp").select(_ENDS)


def _with_lag(ends: pa.Table, steps: OffsetSteps[IntegerColumn], times: Ints, low: int, high: int) -> pa.Table:
    """Return the log end offsets of a period, each with the lag at that time."""
    ends = ends.filter((pc.field("asked_timestamp") >= low) & (pc.field("asked_timestamp") <= high))
    asked, offsets, starts = (ends[name].to_numpy() for name in _ENDS)
    kept = _representatives(asked, offsets, low, high)
    asked, offsets, starts = asked[kept], offsets[kept], starts[kept]
    # Timestamps of a log may go back; the offset in force at a time is the newest one with a timestamp up to it.
    timed = np.flatnonzero(times != NONE)
    newest = np.searchsorted(np.maximum.accumulate(times[timed]), asked, side="right") - 1
    committed = np.full(len(asked), NONE)
    committed[newest >= 0] = steps.new[timed[newest[newest >= 0]]]
    lag = pa.array(offsets - np.maximum(committed, starts), mask=(committed < 0) | (committed > offsets))
    return pa.table({"asked_timestamp": asked, "end_offset": offsets, "lag": lag})
