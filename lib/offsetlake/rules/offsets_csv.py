"""Reads and writes the CSV format that `kafka-consumer-groups --reset-offsets` exports and imports.

The format has no header. A line is `topic,partition,offset` for a single group, and `group,topic,partition,offset` for
several groups. Fields are quoted as Jackson quotes them: with `"`, which is doubled within the field. A file that a
spreadsheet or `offsetlake offsets --format csv` has written may have a header, with columns in any order
(`rules.csv_header`), after a line `sep=;`.

Kafka's tool reads a missing or empty field as 0, uses the last of several lines of a partition, and reads a file with
three fields as if it had four if several groups are selected. All of these are errors here.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.rules.csv_header import Header, HeaderError, is_header, read_header
from offsetlake.util.amounts import counted
from offsetlake.util.text_files import as_utf8

MAX_PARTITION, MAX_OFFSET = 2**31 - 1, 2**63 - 1
MAX_UNQUOTED_CHARACTERS = 24
"""Jackson quotes longer fields without looking at their characters."""

MAX_REPORTED_LINES = 20

SCHEMA = pa.schema(
    [("group_id", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("new_offset", pa.int64())]
)

_SEPARATORS = (",", ";", "\t")
_NAMED_SEPARATOR = re.compile(rb"sep=([,;\t])", re.IGNORECASE)
_UNQUOTED = re.compile(rf"[-.0-9A-Z_a-z]{{1,{MAX_UNQUOTED_CHARACTERS}}}")


class _Row(NamedTuple):
    group_id: str
    topic: str
    partition: int
    new_offset: int


class _BadLineError(Exception):
    """A line of the file is invalid."""


def read_offsets(
    content: bytes,
    group_id: str | None,
    name: str = "the file",
    min_offset: int = 0,
    ignored: Callable[[Sequence[str]], None] = lambda _columns: None,
) -> pa.Table:
    """Return the offsets of a CSV file, with the columns of `SCHEMA`, in the order of the file.

    The file is in UTF-8, or in UTF-16 with a byte order mark. The separator may be a semicolon or a tab.

    Args:
        content: The content of the file. Empty lines are ignored.
        group_id: The group of lines without one; if None, every line must have one.
        name: The name of the file, for error messages.
        min_offset: The smallest valid offset.
        ignored: Called with the names of the columns in the header that are ignored, if there are any.

    Raises:
        BadRequest: Lines are invalid. The message has the number and the error of up to MAX_REPORTED_LINES of them.
    """
    rows: list[_Row] = []
    errors: list[str] = []
    lines: dict[tuple[str, str, int], int] = {}
    width, header = 0, None
    numbered, separator = _numbered_lines(_as_utf8(content, name))
    for index, (number, line) in enumerate(numbered):
        try:
            fields = _fields(line, separator)
            if not index and is_header(fields):
                header = read_header(fields, needs_group=group_id is None)
                continue
            if header:
                fields = _chosen(fields, header)
            row = _row(fields, width, group_id, min_offset)
        except HeaderError as error:
            errors = [f"line {number}: {error}"]
            break
        except _BadLineError as error:
            errors.append(f"line {number}: {error}")
            continue
        width = len(fields)
        rows.append(row)
        if (first := lines.setdefault(row[:3], number)) != number:
            errors.append(f"line {number}: duplicate partition, see line {first}")
    if errors:
        more = [f"and {len(errors) - MAX_REPORTED_LINES} more"] if len(errors) > MAX_REPORTED_LINES else []
        raise BadRequest("\n  ".join([f"Invalid offsets in {name}:", *errors[:MAX_REPORTED_LINES], *more]))
    if header and header.ignored:
        ignored(header.ignored)
    return pa.Table.from_arrays(
        [pa.array([row[index] for row in rows], field.type) for index, field in enumerate(SCHEMA)], schema=SCHEMA
    )


def write_offsets(plan: pa.Table, *, with_group: bool) -> bytes:
    """Return offsets as CSV that Kafka's tool can read.

    Args:
        plan: The columns of `SCHEMA`. Rows whose new_offset is null are omitted.
        with_group: Whether to write the group, which Kafka's tool expects if several groups are selected.

    Raises:
        BadRequest: A group ID contains a line break, which Kafka's tool would read as the end of the line.
    """
    names = SCHEMA.names if with_group else SCHEMA.names[1:]
    columns = [pc.cast(plan[name], pa.string()).to_pylist() for name in names]
    csv_text = io.StringIO()
    for row in zip(*columns, strict=True):
        *texts, partition, offset = row
        if offset is None:
            continue
        if any("\n" in text for text in texts):
            raise BadRequest(
                f"Group {texts[0]!r} has a line break in its ID, which Kafka's CSV format cannot represent."
            )
        csv_text.write(",".join([*map(_quoted, texts), partition, offset]) + "\n")
    return csv_text.getvalue().encode()


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each line that is not empty, and its number from 1; a line ends at a line feed, even within quotes.

    Lines of a file without line feeds end at carriage returns, as in the format CSV (Macintosh) of spreadsheets.
    """
    for number, line in enumerate(content.split(b"\n" if b"\n" in content else b"\r"), 1):
        if line := line.removesuffix(b"\r"):
            yield number, line


def _as_utf8(content: bytes, name: str) -> bytes:
    try:
        return as_utf8(content)
    except UnicodeDecodeError as error:
        raise BadRequest(f"Cannot read {name}: it begins as UTF-16, but is not: {error}.") from error


def _numbered_lines(content: bytes) -> tuple[list[tuple[int, bytes]], str]:
    """Return the lines that are not empty, with their numbers, and what separates their fields.

    A first line such as `sep=;`, which spreadsheets write and read, names the separator.
    """
    lines = [*_lines(content)]
    if lines and (named := _NAMED_SEPARATOR.fullmatch(lines[0][1])):
        return lines[1:], named[1].decode()
    return lines, _separator(lines[0][1].decode(errors="replace") if lines else "")


def _separator(line: str) -> str:
    """Return what separates the fields of the first line: a comma unless only another separator makes valid fields."""
    for separator in _SEPARATORS:
        try:
            fields = next(csv.reader([line], delimiter=separator, strict=True))
        except csv.Error:
            continue
        if len(fields) in {3, 4} or (len(fields) > 1 and is_header(fields)):
            return separator
    return ","


def _chosen(fields: list[str], header: Header) -> list[str]:
    """Return those fields of a line that the header names, in the order of Kafka's CSV."""
    if len(fields) != header.width:
        raise _BadLineError(f"{counted(len(fields), 'field')}, but the header has {header.width}")
    return [fields[place] for place in header.places]


def _fields(line: bytes, separator: str) -> list[str]:
    try:
        [fields] = csv.reader([line.decode()], delimiter=separator, strict=True)
    except UnicodeDecodeError as error:
        raise _BadLineError("not UTF-8") from error
    except csv.Error as error:
        raise _BadLineError(f"not CSV: {error}") from error
    return fields


def _row(fields: list[str], width: int, group_id: str | None, min_offset: int) -> _Row:
    if len(fields) not in {3, 4}:
        raise _BadLineError(
            f"{counted(len(fields), 'field')}, expected topic,partition,offset or group,topic,partition,offset"
        )
    if width not in {0, len(fields)}:
        raise _BadLineError(f"{counted(len(fields), 'field')}, but the lines before have {width}")
    if len(fields) == 3:
        if group_id is None:
            raise _BadLineError("3 fields, expected group,topic,partition,offset for several groups")
        fields = [group_id, *fields]
    group, topic, partition, offset = fields
    if not topic:
        raise _BadLineError("the topic is empty")
    return _Row(
        group,
        topic,
        _number("partition", partition, 0, MAX_PARTITION),
        _number("offset", offset, min_offset, MAX_OFFSET),
    )


def _number(name: str, text: str, minimum: int, maximum: int) -> int:
    if not re.fullmatch(r" *-?[0-9]{1,19} *", text) or not minimum <= (number := int(text)) <= maximum:
        raise _BadLineError(f"invalid {name} {text[:40]!r}: expected an integer from {minimum} to {maximum}")
    return number


def _quoted(text: str) -> str:
    return text if _UNQUOTED.fullmatch(text) else '"' + text.replace('"', '""') + '"'
