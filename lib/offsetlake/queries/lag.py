"""The lag of every group, in records and in time, and its status, from history and recorded log end offsets.

All values are those of the newest ingest that recorded log end offsets: the commits read up to it, compared with the
log end offsets that it recorded.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest, NotInLake
from offsetlake.lake.lake import Lake
from offsetlake.lake.log_ends import ends_asked_by, newest_asked
from offsetlake.queries.history.decided import decided_until
from offsetlake.queries.questions import log_partitions_like
from offsetlake.queries.recorded_ends import RecordedEnds
from offsetlake.rules.lag.consumer_status import MIN_COMMITS, STATUSES, CurrentLags, Status, evaluate
from offsetlake.rules.lag.ends import UNKNOWN
from offsetlake.rules.lag.windows import Windows, newest_commits, window_rows
from offsetlake.rules.reduction import KEY
from offsetlake.util.row_codes import Ints, rows_in
from offsetlake.util.times import about, to_duration, to_iso

_LONGER_THAN_KNOWN = 2**63 - 1  # ms
_END_UNKNOWN = -1  # severity of a partition whose log end offset is unknown: below all others


class _Reason(IntEnum):
    """Why a status is UNKNOWN, as an index of _REASONS."""

    LOG_END_UNKNOWN = 0
    STATUS_KNOWN = 1
    ONE_COMMIT = 2
    ONE_LOG_END = 3


_REASONS = pa.array(["log end unknown", None, "1 commit seen", "log end seen once"])


class NoOffset(NotInLake):
    """No group or topic that the query names has an offset."""


def lag_of_partitions(
    lake: Lake, pattern: str | None = None, topic: str | None = None, now: int | None = None
) -> pa.Table:
    """Return the lag of each group in each partition it has an offset of, the worst first.

    `now`, ms since the epoch, is the instant of the evaluation: what was read or recorded later is ignored. By default
    each partition is evaluated at the time when its log end offset was last recorded.

    | column           | description |
    |------------------|-------------|
    | group_id, topic, partition | the key |
    | status           | one of STATUSES, by `offsetlake.rules.lag.consumer_status` |
    | why              | reason of the status UNKNOWN: too few commits, too few observations of the log end, or none |
    | committed_offset | the newest committed offset that took effect |
    | end_offset       | log end offset; null if the last ingest could not learn it, see its notes |
    | lag              | end_offset minus committed_offset; negative if the partition lost records or was recreated |
    | lag_ms           | time since the committed offset was the log end; null if longer ago than recorded |
    | lag_at_least_ms  | the same, or the time since log end offsets are recorded |
    | commit_timestamp | timestamp of the newest commit, ms |
    | commits          | number of commits that determine the status, at most 10 |
    | asked_timestamp  | when the log end offset was recorded, ms |

    Raises BadRequest if no log end offsets are recorded, or if no such group or topic has an offset.
    """
    run = newest_asked(lake) if now is None else newest_asked(lake, now)
    if run is None:
        raise _nothing_asked(lake, now)
    current, recorded = ends_asked_by(lake, run), RecordedEnds(lake, run)
    parts = [_lag(windows, current, recorded, now) for windows in _windows(lake, run, pattern, topic)]
    if not parts:
        raise _nothing_found(lake, pattern, topic)
    return _worst_first(pa.concat_tables(parts), KEY)


def _lag(windows: Windows, current: pa.Table, all_recorded: RecordedEnds, now: int | None) -> pa.Table:
    """Return the lag of some partitions, given the log end offsets `current` and those recorded before."""
    end_rows, newest = rows_in(windows.keys, current, ("topic", "partition")), windows.newest
    unknown, committed = end_rows == UNKNOWN, windows.offsets[newest]
    end, asked = (_taken(current[name], end_rows) for name in ("end_offset", "asked_timestamp"))
    recorded = all_recorded.for_windows(windows, end)
    partitions = recorded.partitions(windows.keys)
    lag, instants = end - committed, asked if now is None else np.full(len(end_rows), now)
    lags = recorded.lags(partitions[windows.numbers], windows.offsets, windows.timestamps)
    observations, first = recorded.observations(partitions)
    present = CurrentLags(lag, instants, recorded.were_reached(partitions, committed), observations)
    severity = np.where(unknown, _END_UNKNOWN, evaluate(windows, lags, present))
    reached = recorded.reached(partitions, committed)
    lag_ms = np.where(lag > 0, instants - reached, 0)
    columns = {
        "severity": severity,
        "why": _why(severity, windows.counts),
        "committed_offset": committed,
        "end_offset": pa.array(end, mask=unknown),
        "lag": pa.array(lag, mask=unknown),
        "lag_ms": pa.array(lag_ms, mask=unknown | ((lag > 0) & (reached == UNKNOWN))),
        "lag_at_least_ms": pa.array(np.where((lag > 0) & (reached == UNKNOWN), instants - first, lag_ms), mask=unknown),
        "commit_timestamp": windows.timestamps[newest],
        "commits": windows.counts,
        "asked_timestamp": pa.array(asked, mask=unknown),
    }
    return pa.table({**{name: windows.keys[name] for name in KEY}, **columns})


def _taken(column: pa.ChunkedArray, rows: Ints) -> Ints:
    """Return the values of some rows; UNKNOWN for a row that is UNKNOWN."""
    values: Ints = column.take(pa.array(rows, mask=rows == UNKNOWN)).fill_null(UNKNOWN).to_numpy()
    return values


def lag_of_groups(partitions: pa.Table) -> pa.Table:
    """Return the lag of each group, the worst first, from the result of `lag_of_partitions`.

    | column     | description |
    |------------|-------------|
    | group_id   | the group |
    | status, why | those of its worst partition; partitions with unknown log end count only if all are unknown |
    | lag        | lag in records, summed over all partitions with known log end |
    | lag_ms     | the longest lag in time of a partition; null if it is longer than log end offsets are recorded |
    | lag_at_least_ms | the same, or the time since log end offsets are recorded |
    | partitions | number of partitions it has offsets of |
    | not_ok     | number of them with an alarm: WARN, STOP, STALL or REWIND |
    | topic, partition | the worst partition |
    """
    return _worst_first(_of_groups(partitions), ["group_id"])


def lag_by_group(lake: Lake, pattern: str | None = None) -> pa.Table:
    """Return `lag_of_groups` of all groups, or those like `pattern`, for some log partitions at a time, in less memory.

    Raises BadRequest as `lag_of_partitions`.
    """
    run = newest_asked(lake)
    if run is None:
        raise _nothing_asked(lake, None)
    current, recorded = ends_asked_by(lake, run), RecordedEnds(lake, run)

    def of_portion(windows: Windows) -> pa.Table:
        return _of_groups(_worst_first(_lag(windows, current, recorded, None), KEY))

    parts = [*map(of_portion, _windows(lake, run, pattern, None))]
    if not parts:
        raise _nothing_found(lake, pattern)
    groups = pa.concat_tables(parts)
    if len(pc.unique(groups["group_id"])) < groups.num_rows:  # partitions were added to the topic of the log
        return lag_of_groups(lag_of_partitions(lake, pattern))
    return _worst_first(groups, ["group_id"])


def _of_groups(partitions: pa.Table) -> pa.Table:
    """Return the rows of `lag_of_groups`, with the severity instead of the status, in any order."""
    severity = pc.index_in(partitions["status"], pa.array(STATUSES))
    severity = pc.if_else(pc.is_null(partitions["end_offset"]), _END_UNKNOWN, severity)
    beyond = pc.and_(pc.greater(partitions["lag"], 0), pc.is_null(partitions["lag_ms"]))
    columns = {
        "group_id": partitions["group_id"],
        "severity": severity,
        "why": partitions["why"],
        "lag": pc.max_element_wise(partitions["lag"], 0, skip_nulls=False),
        "lag_ms": pc.if_else(beyond, _LONGER_THAN_KNOWN, partitions["lag_ms"]),
        "lag_at_least_ms": partitions["lag_at_least_ms"],
        "not_ok": pc.greater(severity, Status.UNKNOWN).cast(pa.int64()),
        "topic": partitions["topic"],
        "partition": partitions["partition"],
    }
    why_of_worst = ("why", "first", pc.ScalarAggregateOptions(skip_nulls=False))  # null if its status is known
    of_groups = [
        *(("severity", "max"), why_of_worst, ("lag", "sum"), ("lag_ms", "max"), ("lag_at_least_ms", "max")),
        *(("partition", "count"), ("not_ok", "sum"), ("topic", "first"), ("partition", "first")),
    ]
    names = [
        *("group_id", "severity", "why", "lag", "lag_ms", "lag_at_least_ms"),
        *("partitions", "not_ok", "topic", "partition"),
    ]
    groups = pa.table(columns).group_by("group_id", use_threads=False).aggregate(of_groups).rename_columns(names)
    known = pc.if_else(pc.equal(groups["lag_ms"], _LONGER_THAN_KNOWN), None, groups["lag_ms"])
    return groups.set_column(names.index("lag_ms"), "lag_ms", known)


def behind(lags: pa.Table) -> list[str | None]:
    """Return the lag in time of groups or partitions for people; `>2h` means at least two hours."""
    columns = (lags[name].to_pylist() for name in ("lag_ms", "lag_at_least_ms"))
    return [
        to_duration(about(exact)) if exact is not None else f">{to_duration(about(least))}" if least else None
        for exact, least in zip(*columns, strict=True)
    ]


def shown_status(lags: pa.Table) -> list[str]:
    """Return the status of groups or partitions for people, with the reason if it is unknown."""
    both = zip(lags["status"].to_pylist(), lags["why"].to_pylist(), strict=True)
    return [status if why is None else f"unknown ({why})" for status, why in both]


def _why(severity: Ints, commits: Ints) -> pa.Array:
    """Return why a status is UNKNOWN; null for other statuses."""
    conditions = [severity == _END_UNKNOWN, severity != Status.UNKNOWN, commits < MIN_COMMITS]
    reasons = [_Reason.LOG_END_UNKNOWN, _Reason.STATUS_KNOWN, _Reason.ONE_COMMIT]
    return _REASONS.take(pa.array(np.select(conditions, reasons, _Reason.ONE_LOG_END)))


def _worst_first(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Sort rows by severity, which becomes their status, and by lag; rows with unknown log end come last."""
    order = [("severity", "descending"), ("lag", "descending"), *((name, "ascending") for name in key)]
    rows = rows.sort_by(order)
    severity = rows["severity"].to_numpy()
    status = pa.array(STATUSES).take(pa.array(np.where(severity == _END_UNKNOWN, Status.UNKNOWN, severity)))
    return rows.set_column(rows.column_names.index("severity"), "status", status)


def _windows(lake: Lake, run: int, pattern: str | None, topic: str | None) -> Iterator[Windows]:
    """Yield the newest commits of all partitions, some log partitions at a time."""
    where = None if topic is None else pc.field("topic") == topic
    within = None if pattern is None else log_partitions_like(lake, pattern)
    portions = decided_until(lake, run, where, pattern, within, window_rows)
    every = map(newest_commits, portions)  # keeps no portion while it reads
    return (windows for windows in every if len(windows.counts))


def _nothing_found(lake: Lake, pattern: str | None, topic: str | None = None) -> NoOffset:
    like = "" if pattern is None else f" like {pattern!r}"
    of_topic = "" if topic is None else f" of topic {topic!r}"
    return NoOffset(f"no group{like} has an offset{of_topic}, as far as the lake {lake.location} has read")


def _nothing_asked(lake: Lake, now: int | None) -> BadRequest:
    first = lake.query("SELECT min(asked_timestamp) AS at FROM log_ends", "log_ends")["at"][0].as_py()
    if first is None or now is None:
        return BadRequest(
            f"the lake {lake.location} has no log end offsets of topics: only a cycle over a live cluster "
            "records them, `offsetlake run --bootstrap HOST:PORT`"
        )
    return BadRequest(f"log end offsets are recorded since {to_iso(first)}: {to_iso(now)} is before that")
