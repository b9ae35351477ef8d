"""New committed offsets by the strategies of `kafka-consumer-groups --reset-offsets`, as Kafka 4.1 computes them.

Every function takes and gives one row a partition. Columns in, all int64 but for the key, others pass through:

| column           | is |
|------------------|----|
| topic, partition | the key, with group_id where there are several groups |
| committed_offset | null: none |
| earliest, latest | log start offset and log end; null: not known |
| at_time          | (for `to_time`) the first offset from the time on, the log end if there is none; null: not known |

Columns added: requested_offset, new_offset (the requested one kept within the log) and note (what a person should know
about the row, mostly null). The offsets are null if they are unknown.

| Kafka's option            | function                                 | kept within the log |
|---------------------------|------------------------------------------|---------------------|
| to-earliest, to-latest    | `to_earliest`, `to_latest`               | is so               |
| to-current                | `to_current`; the log end if none        | no                  |
| to-offset, from-file      | `to_offset`, one for all or one a row    | yes                 |
| shift-by                  | `shift_by`                               | yes                 |
| to-datetime, by-duration  | `to_time`, the time being asked before   | is so               |

Where a log's ends are not known an offset is taken as it is, but never below 0. Where there is no committed offset to
shift, Kafka's tool does nothing for any partition; here the others have their new offset. Shifted beyond the largest
offset there is, its numbers wrap around and it goes to the log start; here it is the log end.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LARGEST_OFFSET = 2**63 - 1


def to_earliest(rows: pa.Table) -> pa.Table:
    """Go to where each log begins."""
    return _told(rows, rows["earliest"], _where(pc.is_null(rows["earliest"]), "the log start is not known"))


def to_latest(rows: pa.Table) -> pa.Table:
    """Go to where each log ends."""
    return _told(rows, rows["latest"], _where(pc.is_null(rows["latest"]), "the log end is not known"))


def to_current(rows: pa.Table) -> pa.Table:
    """Stay, also outside the log; without a committed offset, go to the log end."""
    none, unknown = pc.is_null(rows["committed_offset"]), pc.is_null(rows["latest"])
    note = pc.coalesce(
        _where(pc.and_(none, unknown), "no committed offset, and the log end is not known"),
        _where(none, "no committed offset: the log end"),
    )
    return _told(rows, pc.coalesce(rows["committed_offset"], rows["latest"]), note)


def to_offset(rows: pa.Table, wanted: int | pa.Array | pa.ChunkedArray) -> pa.Table:
    """Go to one offset, or to one a row (null: cannot be told), within the log."""
    if isinstance(wanted, int):
        wanted = pa.repeat(pa.scalar(wanted, pa.int64()), rows.num_rows)
    return _within_the_log(rows, wanted, _where(pc.is_null(wanted), "no offset given"))


def shift_by(rows: pa.Table, count: int) -> pa.Table:
    """Go on by `count` from the committed offset, back where it is negative, within the log."""
    committed = rows["committed_offset"]
    known = pc.fill_null(committed, 0).to_numpy()
    if count > 0:
        shifted = np.minimum(known, LARGEST_OFFSET - count) + count  # not past what an offset can be
    else:
        shifted = np.maximum(known, -LARGEST_OFFSET - count) + count
    wanted = pa.array(shifted, mask=pc.is_null(committed).to_numpy())
    return _within_the_log(rows, wanted, _where(pc.is_null(committed), "no committed offset to shift"))


def to_time(rows: pa.Table) -> pa.Table:
    """Go to the first record at or after a time, which `at_time` was asked for; where there is none, to the log end."""
    at_time = rows["at_time"]
    note = pc.coalesce(
        _where(pc.is_null(at_time), "where the log stood at the time is not known"),
        _where(pc.greater_equal(at_time, rows["latest"]), "no record at or after the time: the log end"),
    )
    return _told(rows, at_time, note)


def _within_the_log(rows: pa.Table, wanted: Any, note: Any) -> pa.Table:
    earliest, latest = pc.fill_null(rows["earliest"], 0), rows["latest"]
    above = pc.fill_null(pc.greater(wanted, latest), fill_value=False)
    below = pc.fill_null(pc.less(wanted, earliest), fill_value=False)
    unknown = pc.or_(pc.is_null(rows["earliest"]), pc.is_null(latest))
    clamped = ((above, latest, "clamped to the log end "), (below, earliest, "clamped to the log start "))
    notes = [
        pc.if_else(where, pc.binary_join_element_wise(text, pc.cast(end, pa.string()), ""), None)
        for where, end, text in clamped
    ]
    new = pc.if_else(above, latest, pc.if_else(below, earliest, wanted))
    note = pc.coalesce(note, *notes, _where(unknown, "the log's ends are not known: not clamped"))
    return _told(rows, new, note, wanted)


def _where(mask: Any, note: str) -> Any:
    return pc.if_else(mask, pa.scalar(note), pa.scalar(None, pa.string()))


def _told(rows: pa.Table, new_offset: Any, note: Any, requested: Any = None) -> pa.Table:
    new_offset = pc.cast(new_offset, pa.int64())
    requested = new_offset if requested is None else pc.cast(requested, pa.int64())
    rows = rows.append_column("requested_offset", requested).append_column("new_offset", new_offset)
    return rows.append_column("note", note)
