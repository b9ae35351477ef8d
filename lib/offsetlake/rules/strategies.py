"""Computes new committed offsets by the strategies of `kafka-consumer-groups --reset-offsets`, as Kafka 4.1 does.

Every function takes a table with one row per partition and these columns, and keeps any others:

| Column           | Type   | Description |
|------------------|--------|-------------|
| topic, partition | string, integer | the key, together with group_id if there are several groups |
| committed_offset | int64  | null: none |
| earliest, latest | int64  | the log start offset and the log end offset; null: unknown |
| at_time          | int64  | for `to_time`: the first offset at or after the time, or the log end; null: unknown |

It returns the table with these columns added:

| Column           | Type   | Description |
|------------------|--------|-------------|
| requested_offset | int64  | the offset before it is clamped; null: unknown |
| new_offset       | int64  | the requested offset, clamped to the range of the log by some strategies; null: unknown |
| note             | string | a remark about the row for the user, often null |

| Option of Kafka's tool    | Function                                                      | Clamped              |
|---------------------------|---------------------------------------------------------------|----------------------|
| to-earliest, to-latest    | `to_earliest`, `to_latest`                                    | always in the range  |
| to-current                | `to_current`; the log end offset if there is no committed one | no                   |
| to-offset, from-file      | `to_offset`, one for all rows or one per row                  | yes                  |
| shift-by                  | `shift_by`                                                    | yes                  |
| to-datetime, by-duration  | `to_time`, with `at_time` looked up before                    | always in the range  |

If the range of the log is unknown, an offset is not clamped, but it is never negative. There are two differences from
Kafka's tool. If one partition has no committed offset to shift, the tool resets no partition; here the others are
reset. If an offset is shifted beyond the largest integer, it overflows in the tool and becomes the log start offset;
here it becomes the log end offset.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MAX_OFFSET = 2**63 - 1


def to_earliest(rows: pa.Table) -> pa.Table:
    """Reset to the log start offset."""
    return _with_results(
        rows, rows["earliest"], _where(pc.is_null(rows["earliest"]), "the log start offset is unknown")
    )


def to_latest(rows: pa.Table) -> pa.Table:
    """Reset to the log end offset."""
    return _with_results(rows, rows["latest"], _where(pc.is_null(rows["latest"]), "the log end offset is unknown"))


def to_current(rows: pa.Table) -> pa.Table:
    """Keep the committed offset, even outside of the log; without one, reset to the log end offset."""
    none, unknown = pc.is_null(rows["committed_offset"]), pc.is_null(rows["latest"])
    note = pc.coalesce(
        _where(pc.and_(none, unknown), "no committed offset, and the log end offset is unknown"),
        _where(none, "no committed offset: reset to the log end"),
    )
    return _with_results(rows, pc.coalesce(rows["committed_offset"], rows["latest"]), note)


def to_offset(rows: pa.Table, offset: int | pa.Array | pa.ChunkedArray) -> pa.Table:
    """Reset to one offset for all rows, or to one per row (null: unknown), clamped to the range of the log."""
    if isinstance(offset, int):
        offset = pa.repeat(pa.scalar(offset, pa.int64()), rows.num_rows)
    return _clamped(rows, offset, _where(pc.is_null(offset), "no offset given"))


def shift_by(rows: pa.Table, count: int) -> pa.Table:
    """Add `count`, which may be negative, to the committed offset, clamped to the range of the log."""
    committed = rows["committed_offset"]
    known = pc.fill_null(committed, 0).to_numpy()
    if count > 0:
        shifted = np.minimum(known, MAX_OFFSET - count) + count  # without overflow
    else:
        shifted = np.maximum(known, -MAX_OFFSET - count) + count
    requested = pa.array(shifted, mask=pc.is_null(committed).to_numpy())
    return _clamped(rows, requested, _where(pc.is_null(committed), "no committed offset to shift"))


def to_time(rows: pa.Table) -> pa.Table:
    """Reset to `at_time`: the offset of the first record at or after a time, or the log end offset."""
    at_time = rows["at_time"]
    note = pc.coalesce(
        _where(pc.is_null(at_time), "the offset at the time is unknown"),
        _where(pc.greater_equal(at_time, rows["latest"]), "no record at or after the time: reset to the log end"),
    )
    return _with_results(rows, at_time, note)


def _clamped(rows: pa.Table, requested: Any, note: Any) -> pa.Table:
    earliest, latest = pc.fill_null(rows["earliest"], 0), rows["latest"]
    above = pc.fill_null(pc.greater(requested, latest), fill_value=False)
    below = pc.fill_null(pc.less(requested, earliest), fill_value=False)
    unknown = pc.or_(pc.is_null(rows["earliest"]), pc.is_null(latest))
    limits = ((above, latest, "clamped to the log end "), (below, earliest, "clamped to the log start "))
    notes = [
        pc.if_else(where, pc.binary_join_element_wise(text, pc.cast(limit, pa.string()), ""), None)
        for where, limit, text in limits
    ]
    new = pc.if_else(above, latest, pc.if_else(below, earliest, requested))
    note = pc.coalesce(note, *notes, _where(unknown, "not clamped: the range of the log is unknown"))
    return _with_results(rows, new, note, requested)


def _where(mask: Any, note: str) -> Any:
    return pc.if_else(mask, pa.scalar(note), pa.scalar(None, pa.string()))


def _with_results(rows: pa.Table, new_offset: Any, note: Any, requested: Any = None) -> pa.Table:
    new_offset = pc.cast(new_offset, pa.int64())
    requested = new_offset if requested is None else pc.cast(requested, pa.int64())
    rows = rows.append_column("requested_offset", requested).append_column("new_offset", new_offset)
    return rows.append_column("note", note)
