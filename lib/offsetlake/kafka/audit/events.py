"""Audit events, from the headers of `audit_headers` to Arrow columns: no object per event.

No header can be malformed: what it says is beside what was done, and takes nothing from it. A value that is longer than
LONGEST is cut, what is not UTF-8 is replaced, of two of a name the last one counts. Without a `what` or a principal, or
under a key that names no group, there is no act.
"""

import numpy as np
import pyarrow as pa
from numba import njit

from offsetlake.kafka.audit.headers import ADDRESS, CLIENT, LONGEST, PRINCIPAL, WHAT
from offsetlake.kafka.batches.kernels import Ints, int16_at, is_text, sized, varint
from offsetlake.kafka.batches.reader import Records
from offsetlake.kafka.batches.string_columns import strings

SCHEMA = pa.schema(
    [
        ("log_offset", pa.int64()),
        ("last_log_offset", pa.int64()),
        ("log_timestamp", pa.int64()),
        ("group_id", pa.string()),
        ("what", pa.string()),
        ("principal", pa.string()),
        ("client_id", pa.string()),
        ("address", pa.string()),
    ]
)

_WHAT, _PRINCIPAL, _CLIENT, _ADDRESS = (
    np.frombuffer(name.encode(), np.uint8) for name in (WHAT, PRINCIPAL, CLIENT, ADDRESS)
)
_TEXTS = ("group_id", "what", "principal", "client_id", "address")  # rows of the layout, two each: position and length


def read_audit_events(records: Records) -> pa.RecordBatch:
    """Read the audit events in the headers of the first record of each batch of `__consumer_offsets`.

    | column          | type   | is |
    |-----------------|--------|----|
    | log_offset      | int64  | of the first record that was written |
    | last_log_offset | int64  | of the last one; the log may not have them all any more |
    | log_timestamp   | int64  | ms; null where the batch has none |
    | group_id        | string | |
    | what, principal, client_id, address | string | as `audit_headers` has them; null = absent |
    """
    rows = np.flatnonzero((records.headers_at >= 0) & ~records.control)
    batch = np.searchsorted(records.spans[1], records.log_offset[rows])
    rows = rows[records.spans[0, batch] == records.log_offset[rows]]
    layout = np.zeros((2 * len(_TEXTS), len(rows)), np.int64)
    layout[1::2] = -1
    _read_headers(records.buffer, rows, records.headers_at, records.key_at, records.key_length, layout)
    told = (layout[1:6:2] >= 0).all(axis=0)
    rows, layout = rows[told], layout[:, told]
    last = records.spans[1, np.searchsorted(records.spans[1], records.log_offset[rows])]
    timestamp = records.log_timestamp[rows]
    numbers = [pa.array(records.log_offset[rows]), pa.array(last), pa.array(timestamp, mask=timestamp == -1)]
    return pa.RecordBatch.from_arrays([*numbers, *_texts(records, layout)], schema=SCHEMA)


def _texts(records: Records, layout: Ints) -> list[pa.StringArray]:
    found = []
    for at, lengths in zip(layout[::2], layout[1::2], strict=True):
        column = strings(records.buffer, at, np.maximum(lengths, 0), lengths < 0)
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            values = column.cast(pa.binary(), safe=False).to_pylist()
            column = pa.array([None if value is None else value.decode(errors="replace") for value in values])
        found.append(column)
    return found


@njit(cache=True, nogil=True)
def _read_headers(buffer, rows, headers_at, key_at, key_length, layout):  # type: ignore[no-untyped-def]
    """Fill a column of the layout for each of `rows`, whose headers are known to be laid out well."""
    end = len(buffer)
    for column in range(len(rows)):
        row = rows[column]
        if key_length[row] >= 4:
            length = int16_at(buffer, key_at[row] + 2)
            if 0 <= length <= key_length[row] - 4:
                layout[0, column], layout[1, column] = key_at[row] + 4, length
        count, at = varint(buffer, headers_at[row], end)
        for _ in range(count):
            name_at, name_length, at = sized(buffer, at, end)
            value_at, value_length, at = sized(buffer, at, end)
            field = _field(buffer, name_at, name_length)
            if field:
                layout[2 * field, column], layout[2 * field + 1, column] = value_at, min(value_length, LONGEST)


@njit(cache=True, nogil=True)
def _field(buffer, at, length):  # type: ignore[no-untyped-def]
    """Give which of _TEXTS a header of this name holds; 0 for none."""
    if is_text(buffer, at, length, _WHAT):
        return 1
    if is_text(buffer, at, length, _PRINCIPAL):
        return 2
    if is_text(buffer, at, length, _CLIENT):
        return 3
    return 4 if is_text(buffer, at, length, _ADDRESS) else 0
