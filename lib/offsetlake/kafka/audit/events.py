"""Reads audit events from record headers (`headers.py`) into Arrow columns.

A malformed audit header never makes its record undecodable: longer values are truncated to MAX_VALUE_BYTES, invalid
UTF-8 is replaced, and the last of several headers with the same name counts. A record without an operation, a principal
or a group ID has no audit event.
"""

import numpy as np
import pyarrow as pa

from offsetlake.kafka.audit.headers import ADDRESS, CLIENT, MAX_VALUE_BYTES, PRINCIPAL, WHAT
from offsetlake.kafka.batches.kernels import Ints, int16_at, is_text, sized, varint
from offsetlake.kafka.batches.reader import Records
from offsetlake.kafka.batches.string_columns import strings
from offsetlake.kafka.compiled import compiled

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
_TEXTS = (
    "group_id",
    "what",
    "principal",
    "client_id",
    "address",
)  # each has two rows in the layout: position and length


def read_audit_events(records: Records) -> pa.RecordBatch:
    """Return the audit events of the first records of batches of `__consumer_offsets`.

    | Column          | Type   | Description |
    |-----------------|--------|-------------|
    | log_offset      | int64  | Offset of the first record that was written |
    | last_log_offset | int64  | Offset of the last one; compaction may have removed records since |
    | log_timestamp   | int64  | Milliseconds since the epoch; null if the batch has none |
    | group_id        | string | |
    | what, principal, client_id, address | string | See `headers.py`; null = absent |
    """
    rows = np.flatnonzero((records.headers_at >= 0) & ~records.control)
    batch = np.searchsorted(records.spans[1], records.log_offset[rows])
    rows = rows[records.spans[0, batch] == records.log_offset[rows]]
    layout = np.zeros((2 * len(_TEXTS), len(rows)), np.int64)
    layout[1::2] = -1
    _read_headers(records.buffer, rows, records.headers_at, records.key_at, records.key_length, layout)
    complete = (layout[1:6:2] >= 0).all(axis=0)
    rows, layout = rows[complete], layout[:, complete]
    last = records.spans[1, np.searchsorted(records.spans[1], records.log_offset[rows])]
    timestamp = records.log_timestamp[rows]
    numbers = [pa.array(records.log_offset[rows]), pa.array(last), pa.array(timestamp, mask=timestamp == -1)]
    return pa.RecordBatch.from_arrays([*numbers, *_texts(records, layout)], schema=SCHEMA)


def _texts(records: Records, layout: Ints) -> list[pa.StringArray]:
    columns = []
    for positions, lengths in zip(layout[::2], layout[1::2], strict=True):
        column = strings(records.buffer, positions, np.maximum(lengths, 0), lengths < 0)
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            values = column.cast(pa.binary(), safe=False).to_pylist()
            column = pa.array([None if value is None else value.decode(errors="replace") for value in values])
        columns.append(column)
    return columns


@compiled(cache=True, nogil=True)
def _read_headers(buffer, rows, headers_at, key_at, key_length, layout):  # type: ignore[no-untyped-def]
    """Fill a column of the layout for each of `rows`, whose headers are known to be well-formed."""
    end = len(buffer)
    for column in range(len(rows)):
        row = rows[column]
        if key_length[row] >= 4:
            length = int16_at(buffer, key_at[row] + 2)
            if 0 <= length <= key_length[row] - 4:
                layout[0, column], layout[1, column] = key_at[row] + 4, length
        count, position = varint(buffer, headers_at[row], end)
        for _ in range(count):
            name_at, name_length, position = sized(buffer, position, end)
            value_at, value_length, position = sized(buffer, position, end)
            field = _field(buffer, name_at, name_length)
            if field:
                layout[2 * field, column], layout[2 * field + 1, column] = value_at, min(value_length, MAX_VALUE_BYTES)


@compiled(cache=True, nogil=True)
def _field(buffer, position, length):  # type: ignore[no-untyped-def]
    """Return the index in _TEXTS of the field that a header with this name contains; 0 for other names."""
    if is_text(buffer, position, length, _WHAT):
        return 1
    if is_text(buffer, position, length, _PRINCIPAL):
        return 2
    if is_text(buffer, position, length, _CLIENT):
        return 3
    return 4 if is_text(buffer, position, length, _ADDRESS) else 0
