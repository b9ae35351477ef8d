"""The lag and the severity of each partition, from the newest commits, assignments, and recorded log end offsets."""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.queries.assignments import OWNER
from offsetlake.queries.recorded_ends import RecordedEnds
from offsetlake.rules.lag.consumer_status import MIN_COMMITS, STATUSES, CurrentLags, LagStatus, evaluate
from offsetlake.rules.lag.ends import UNKNOWN
from offsetlake.rules.lag.windows import Windows
from offsetlake.rules.reduction import KEY
from offsetlake.util.columns import taken
from offsetlake.util.row_codes import Ints, among, rows_in

NO_RECORD = -1
"""Severity of a partition with the status NO_COMMIT that has no record to read: less than that of all others."""

_PARTITION = ("topic", "partition")


class _Reason(IntEnum):
    """Why a status is UNKNOWN, as an index of _REASONS."""

    LOG_END_UNKNOWN = 0
    STATUS_KNOWN = 1
    ONE_COMMIT = 2
    ONE_LOG_END = 3


OFFSET_UNKNOWN = "committed offset unknown"
"""Why a status is UNKNOWN if a record of the offset cannot be decoded."""
_REASONS = pa.array(["log end unknown", None, "1 commit seen", "log end seen once"])


def lag_rows(
    windows: Windows, assigned: pa.Table, current: pa.Table, all_recorded: RecordedEnds, now: int | None
) -> pa.Table:
    """Return the rows of `lag_of_partitions`, with the severity instead of the status, in any order.

    Args:
        windows: The newest commits of some groups.
        assigned: The partitions that members of these groups read, as `Assignments.of` returns them.
        current: The current log end offsets, as `ends_asked_by` returns them.
        all_recorded: Those recorded before.
        now: The instant of the evaluation, in ms since the epoch; None for when the log end offsets were recorded.

    """
    owners = rows_in(windows.keys, assigned, KEY)
    never = np.ones(assigned.num_rows, np.bool_)
    never[owners[owners >= 0]] = False
    parts = [_never_committed(assigned.filter(pa.array(never)), current)]
    if len(windows.counts):
        rows = _committed(windows, current, all_recorded, now)
        for name in OWNER:
            rows = rows.append_column(name, taken(assigned[name], owners))
        parts.insert(0, rows)
    return pa.concat_tables(parts)


def without_unknown(rows: pa.Table, unknown: pa.Table) -> pa.Table:
    """Return rows of `lag_rows` without the lag of offsets that are unknown, which are given by KEY."""
    chosen = pa.array(among(rows, unknown, KEY))
    most = pc.subtract(rows["end_offset"], rows["start_offset"])
    columns = {"severity": int(LagStatus.UNKNOWN), "why": OFFSET_UNKNOWN, "lag_at_most": most}
    columns |= dict.fromkeys(("lag", "lag_ms", "lag_at_least_ms", "deleted_before_read"))
    for name, value in columns.items():
        at, kind = rows.column_names.index(name), rows.schema.field(name).type
        other = value if isinstance(value, pa.ChunkedArray) else pa.scalar(value, kind)
        rows = rows.set_column(at, name, pc.if_else(chosen, other, rows[name]).cast(kind))
    return rows


def worst_first(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Sort rows by severity, which becomes their status, and by lag; unknown lags come last."""
    names = ("severity", "lag", "lag_at_most")
    rows = rows.sort_by([*((name, "descending") for name in names), *((name, "ascending") for name in key)])
    severity = rows["severity"].to_numpy()
    status = pa.array(STATUSES).take(pa.array(np.where(severity == NO_RECORD, LagStatus.NO_COMMIT, severity)))
    return rows.set_column(rows.column_names.index("severity"), "status", status)


def severities(rows: pa.Table) -> pa.ChunkedArray:
    """Return the severity of each row of `lag_of_partitions`."""
    severity = pc.index_in(rows["status"], pa.array(STATUSES)).cast(pa.int64())
    is_empty = pc.fill_null(pc.equal(rows["lag"], 0), fill_value=False)
    has_no_record = pc.and_(pc.equal(severity, LagStatus.NO_COMMIT), is_empty)
    return pc.if_else(has_no_record, pa.scalar(NO_RECORD, pa.int64()), severity)


def _committed(windows: Windows, current: pa.Table, all_recorded: RecordedEnds, now: int | None) -> pa.Table:
    """Return the rows of partitions with commits, without the columns OWNER."""
    end_rows, newest = rows_in(windows.keys, current, _PARTITION), windows.newest
    unknown, committed = end_rows == UNKNOWN, windows.offsets[newest]
    start, end, asked = (_taken(current[name], end_rows) for name in ("start_offset", "end_offset", "asked_timestamp"))
    recorded = all_recorded.for_windows(windows, end)
    partitions = recorded.partitions(windows.keys)
    deleted = np.maximum(start - np.maximum(committed, 0), 0)
    lag, instants = end - np.maximum(committed, start), asked if now is None else np.full(len(end_rows), now)
    lags = recorded.lags(partitions[windows.numbers], windows.offsets, windows.timestamps)
    observations, first = recorded.observations(partitions)
    present = CurrentLags(lag, deleted, instants, recorded.were_reached(partitions, committed), observations)
    severity = np.where(unknown, LagStatus.UNKNOWN, evaluate(windows, lags, present))
    is_none = committed < 0  # clients and Kafka's tools take such an offset for none
    severity = np.where(is_none, np.where(~unknown & (end <= start), NO_RECORD, LagStatus.NO_COMMIT), severity)
    reached = recorded.reached(partitions, committed)
    lag_ms = np.where(lag > 0, instants - reached, 0)
    lag_unknown = unknown | (lag < 0) | (is_none & (end > start))
    columns = {
        "severity": severity,
        "why": _why(severity, unknown, windows.counts),
        "committed_offset": committed,
        "end_offset": pa.array(end, mask=unknown),
        "lag": pa.array(lag, mask=lag_unknown),
        "lag_ms": pa.array(lag_ms, mask=lag_unknown | ((lag > 0) & (reached == UNKNOWN))),
        "lag_at_least_ms": pa.array(
            np.where((lag > 0) & (reached == UNKNOWN), instants - first, lag_ms), mask=lag_unknown
        ),
        "commit_timestamp": windows.timestamps[newest],
        "commits": windows.counts,
        "asked_timestamp": pa.array(asked, mask=unknown),
        "start_offset": pa.array(start, mask=unknown),
        "lag_at_most": pa.array(np.where(lag_unknown, end - start, lag), mask=unknown),
        "deleted_before_read": pa.array(np.where(is_none, 0, deleted), mask=unknown),
    }
    return pa.table({**{name: windows.keys[name] for name in KEY}, **columns})


def _never_committed(assigned: pa.Table, current: pa.Table) -> pa.Table:
    """Return the rows of assigned partitions without a commit."""
    count, end_rows = assigned.num_rows, rows_in(assigned, current, _PARTITION)
    start, end, asked = (taken(current[name], end_rows) for name in ("start_offset", "end_offset", "asked_timestamp"))
    unread = pc.subtract(end, start)
    is_empty = pc.fill_null(pc.equal(unread, 0), fill_value=False)
    none = pa.nulls(count, pa.int64())
    columns = {
        "severity": pc.if_else(
            is_empty, pa.scalar(NO_RECORD, pa.int64()), pa.scalar(int(LagStatus.NO_COMMIT), pa.int64())
        ),
        "why": pa.nulls(count, pa.string()),
        "committed_offset": none,
        "end_offset": end,
        "lag": pc.if_else(is_empty, unread, None),
        "lag_ms": none,
        "lag_at_least_ms": none,
        "commit_timestamp": none,
        "commits": pa.array(np.zeros(count, np.int64)),
        "asked_timestamp": asked,
        "start_offset": start,
        "lag_at_most": unread,
        "deleted_before_read": pc.if_else(pc.is_valid(end), pa.scalar(0, pa.int64()), None),
    }
    keys, owners = ({name: assigned[name] for name in names} for names in (KEY, OWNER))
    return pa.table({**keys, **columns, **owners})


def _taken(column: pa.ChunkedArray, rows: Ints) -> Ints:
    """Return the values of some rows; UNKNOWN for a row that is UNKNOWN."""
    values: Ints = taken(column, rows).fill_null(UNKNOWN).to_numpy()
    return values


def _why(severity: Ints, end_unknown: npt.NDArray[np.bool_], commits: Ints) -> pa.Array:
    """Return why a status is UNKNOWN; null for other statuses."""
    conditions = [severity != LagStatus.UNKNOWN, end_unknown, commits < MIN_COMMITS]
    reasons = [_Reason.STATUS_KNOWN, _Reason.LOG_END_UNKNOWN, _Reason.ONE_COMMIT]
    return _REASONS.take(pa.array(np.select(conditions, reasons, _Reason.ONE_LOG_END)))
