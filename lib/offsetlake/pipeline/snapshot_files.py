"""Files that contain the rows of a snapshot, and that `import` reads offsets from.

| suffix     | content |
|------------|---------|
| `.parquet` | the columns of the table; the key `offsetlake.log_ends` of the file's metadata has the log position |
| `.arrow`   | the same in the Arrow IPC file format |
| `.jsonl`   | a line `{"log_ends": ...}`, then a JSON object a row, without columns of bytes |
| `.csv`     | the CSV of `kafka-consumer-groups` for several groups: only offsets, without a log position |

A CSV file that is read may also have a header. The log position is a JSON object: by log partition, the log offset
after the last record that the snapshot contains.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from glob import escape
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq
from pyarrow import feather

from offsetlake.errors import BadRequest
from offsetlake.rules.offsets_csv import (
    MAX_PARTITION,
    MAX_REPORTED_LINES,
    SCHEMA,
    read_offsets,
    write_offsets,
)
from offsetlake.rules.policy import like
from offsetlake.util.atomic_files import replacing
from offsetlake.util.row_codes import order_codes
from offsetlake.util.text_files import as_utf8

LOG_ENDS = "offsetlake.log_ends"
"""The key of the log position in the metadata of Parquet and Arrow files."""

_COLUMNS = pa.schema([field.with_name("committed_offset") if field.name == "new_offset" else field for field in SCHEMA])
_ROWS_AT_ONCE = 10_000
Ignored = Callable[[Sequence[str]], None]
MIN_OFFSET = -(2**63)
"""A snapshot contains what was committed: a client may have committed a negative offset."""


def export(rows: pa.Table, log_ends: Mapping[int, int], path: Path) -> None:
    """Write the rows of a snapshot atomically, in the format that the suffix of the file says.

    Args:
        rows: The rows of one table.
        log_ends: By log partition, the log offset after the last record applied.
        path: The file; one that exists is replaced.

    Raises:
        BadRequest: The suffix is another one, the file cannot be written, or CSV cannot represent the rows.
    """
    write = _WRITERS.get(path.suffix)
    if write is None:
        raise BadRequest(f"Cannot write {path}: the name of the file must end in {_SUFFIXES}.")
    plain = pa.table({name: _without_dictionary(rows[name]) for name in rows.column_names})
    position = json.dumps({str(partition): end for partition, end in sorted(log_ends.items())})
    try:
        with replacing(path) as file:
            write(plain.replace_schema_metadata({LOG_ENDS: position}), file)
    except OSError as error:
        raise BadRequest(f"Cannot write {path}: {error.strerror or error}.") from error


def offsets_of_file(path: Path, pattern: str, ignored: Ignored = lambda _columns: None) -> pa.Table:
    """Read the offsets of groups from a file, with the columns of `offsets_csv.SCHEMA`.

    Args:
        path: A file that `export` or `kafka-consumer-groups --export` has written, or one with the columns group_id,
            topic, partition and committed_offset; it may have more columns.
        pattern: A group, or a shell pattern of groups.
        ignored: Called with the names of columns of a CSV file that are ignored, if there are any.

    Raises:
        BadRequest: The file cannot be read, or contains rows that are not offsets, which the message lists. Negative
            offsets, which clients can have committed, are returned.
    """
    read = _READERS.get(path.suffix)
    if read is None:
        raise BadRequest(f"Cannot read {path}: the name of the file must end in {_SUFFIXES}.")
    try:
        rows = read(path, ignored)
    except OSError as error:
        raise BadRequest(f"Cannot read {path}: {error.strerror or error}.") from error
    except pa.ArrowException as error:
        raise BadRequest(f"Cannot read {path}: {error}.") from error
    if pattern != "*" and pc.index(rows["group_id"], pattern).as_py() >= 0:  # as in selection.name_or_pattern
        pattern = escape(pattern)
    return rows.filter(pa.array(like(rows["group_id"], pattern)))


def _without_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _write_json_lines(rows: pa.Table, file: Path) -> None:
    rows = rows.drop_columns([field.name for field in rows.schema if pa.types.is_binary(field.type)])
    with file.open("w", encoding="utf-8") as lines:
        lines.write(f'{{"log_ends": {rows.schema.metadata[LOG_ENDS.encode()].decode()}}}\n')
        for batch in rows.to_batches(max_chunksize=_ROWS_AT_ONCE):
            lines.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in batch.to_pylist())


def _write_csv(rows: pa.Table, file: Path) -> None:
    if "committed_offset" not in rows.column_names:
        raise BadRequest("Only offsets can be written as CSV: choose .parquet, .arrow or .jsonl.")
    names = [field.name for field in _COLUMNS]
    with file.open("wb") as lines:
        for first in range(0, rows.num_rows, _ROWS_AT_ONCE):
            portion = rows.select(names).slice(first, _ROWS_AT_ONCE).rename_columns(SCHEMA.names)
            lines.write(write_offsets(portion, with_group=True))


def _read_csv(path: Path, ignored: Ignored) -> pa.Table:
    return read_offsets(path.read_bytes(), None, str(path), MIN_OFFSET, ignored)


def _read_json_lines(path: Path, _ignored: Ignored) -> pa.Table:
    options = pj.ParseOptions(explicit_schema=_COLUMNS, unexpected_field_behavior="ignore")
    try:
        content = as_utf8(path.read_bytes())
    except UnicodeDecodeError as error:
        raise BadRequest(f"Cannot read {path}: it begins as UTF-16, but is not: {error}.") from error
    rows = pj.read_json(pa.BufferReader(content), parse_options=options)
    is_position = pc.and_(pc.is_null(rows["group_id"]), pc.is_null(rows["committed_offset"]))
    return _checked(rows.filter(pc.invert(is_position)), path)


def _read_columns(path: Path, _ignored: Ignored) -> pa.Table:
    names = [field.name for field in _COLUMNS]
    reader = pq.read_table if path.suffix == ".parquet" else feather.read_table
    found = pq.read_schema(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).schema
    if missing := [name for name in names if name not in found.names]:
        raise BadRequest(f"Cannot read {path}: the columns {', '.join(missing)} are missing.")
    return _checked(reader(path, columns=names).cast(_COLUMNS), path)


def _checked(rows: pa.Table, path: Path) -> pa.Table:
    """Return rows with the columns of `offsets_csv.SCHEMA`; raise BadRequest for values that no offset can have."""
    problems = {
        "a value is missing": functools.reduce(pc.or_, map(pc.is_null, rows.columns)),
        "the topic is empty": pc.equal(rows["topic"], ""),
        f"the partition is not from 0 to {MAX_PARTITION}": pc.less(rows["partition"], 0),
    }
    wrong: dict[int, str] = {}
    for problem, found in problems.items():
        indices = pc.indices_nonzero(pc.fill_null(found, fill_value=False)).to_pylist()
        wrong = dict.fromkeys(indices, problem) | wrong
    if not wrong:
        codes = order_codes(rows, ["group_id", "topic", "partition"])
        _, firsts, numbers = np.unique(codes, return_index=True, return_inverse=True)
        first_of_row = firsts[numbers]
        for row in np.flatnonzero(first_of_row != np.arange(len(codes))).tolist():
            wrong[row] = f"duplicate partition, see row {first_of_row[row] + 1}"
    if wrong:
        lines = [f"row {row + 1}: {wrong[row]}" for row in sorted(wrong)[:MAX_REPORTED_LINES]]
        more = [f"and {len(wrong) - len(lines)} more"] if len(wrong) > len(lines) else []
        raise BadRequest("\n  ".join([f"Invalid offsets in {path}:", *lines, *more]))
    return rows.rename_columns(SCHEMA.names)


_WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    ".parquet": pq.write_table,
    ".arrow": feather.write_feather,
    ".jsonl": _write_json_lines,
    ".csv": _write_csv,
}
_READERS: dict[str, Callable[[Path, Ignored], pa.Table]] = {
    ".parquet": _read_columns,
    ".arrow": _read_columns,
    ".jsonl": _read_json_lines,
    ".csv": _read_csv,
}
_SUFFIXES = ".parquet, .arrow, .jsonl or .csv"
