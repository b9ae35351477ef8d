"""Offsets as `kafka-consumer-groups --reset-offsets` exports them and takes them from a file: CSV without a header.

A line is `topic,partition,offset` where one group is meant, `group,topic,partition,offset` where there are several.
Fields are quoted as Jackson does it: `"`, doubled within. Kafka's tool takes a field that is missing or empty for 0, of
two lines for one partition the last, and reads a file of three fields as one of four when several groups are asked
for; here all that is an error.
"""

import csv
import io
import re
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest

LARGEST_PARTITION, LARGEST_OFFSET = 2**31 - 1, 2**63 - 1
LONGEST_UNQUOTED = 24
"""Jackson quotes longer fields unseen."""
TOLD_LINES = 20

SCHEMA = pa.schema(
    [("group_id", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("new_offset", pa.int64())]
)

_UNQUOTED = re.compile(rf"[-.0-9A-Z_a-z]{{1,{LONGEST_UNQUOTED}}}")


class _Row(NamedTuple):
    group_id: str
    topic: str
    partition: int
    new_offset: int


class _BadLineError(Exception):
    """What is wrong with a line."""


def read_offsets(content: bytes, group_id: str | None, name: str = "the file") -> pa.Table:
    """Read the lines of a CSV file in UTF-8. Columns: those of `SCHEMA`, in the file's order; no row is half read.

    Lines of three fields are of `group_id`; without one every line must name its group. Empty lines are passed over.
    Raises BadRequest, with each bad line's number and what is wrong with it, up to 20 of them, and how many more.
    """
    rows: list[_Row] = []
    bad: list[str] = []
    lines: dict[tuple[str, str, int], int] = {}
    width = 0
    for number, line in _lines(content):
        try:
            fields = _fields(line)
            row = _row(fields, width, group_id)
        except _BadLineError as error:
            bad.append(f"line {number}: {error}")
            continue
        width = len(fields)
        rows.append(row)
        if (first := lines.setdefault(row[:3], number)) != number:
            bad.append(f"line {number}: for the same partition as line {first}")
    if bad:
        more = [f"and {len(bad) - TOLD_LINES} more"] if len(bad) > TOLD_LINES else []
        raise BadRequest("\n  ".join([f"{name} cannot be used:", *bad[:TOLD_LINES], *more]))
    return pa.Table.from_arrays(
        [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(SCHEMA)], schema=SCHEMA
    )


def write_offsets(plan: pa.Table, *, with_group: bool) -> bytes:
    """Write offsets so that Kafka's tool reads them back: with their groups where it is given several.

    Columns: those of `SCHEMA`; rows whose new_offset is null are left out. Raises BadRequest for a group id with a line
    break in it: Kafka's tool takes that for the end of the line.
    """
    names = SCHEMA.names if with_group else SCHEMA.names[1:]
    columns = [pc.cast(plan[name], pa.string()).to_pylist() for name in names]
    written = io.StringIO()
    for each in zip(*columns, strict=True):
        *texts, partition, offset = each
        if offset is None:
            continue
        if any("\n" in text for text in texts):
            raise BadRequest(f"group {texts[0]!r} has a line break in its id: Kafka's CSV has no way to write it")
        written.write(",".join([*map(_quoted, texts), partition, offset]) + "\n")
    return written.getvalue().encode()


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Give each line that holds anything and its number, from 1 on; a line ends at a line feed, also within quotes."""
    for number, line in enumerate(content.split(b"\n"), 1):
        if line := line.removesuffix(b"\r"):
            yield number, line


def _fields(line: bytes) -> list[str]:
    try:
        [fields] = csv.reader([line.decode()], strict=True)
    except UnicodeDecodeError as error:
        raise _BadLineError("no UTF-8") from error
    except csv.Error as error:
        raise _BadLineError(f"no CSV: {error}") from error
    return fields


def _row(fields: list[str], width: int, group_id: str | None) -> _Row:
    if len(fields) not in {3, 4}:
        raise _BadLineError(f"{len(fields)} fields: it is topic,partition,offset or group,topic,partition,offset")
    if width not in {0, len(fields)}:
        raise _BadLineError(f"{len(fields)} fields, but {width} in the lines before")
    if len(fields) == 3:
        if group_id is None:
            raise _BadLineError("3 fields: with several groups it is group,topic,partition,offset")
        fields = [group_id, *fields]
    group, topic, partition, offset = fields
    if not topic:
        raise _BadLineError("no topic")
    return _Row(
        group,
        topic,
        _number("partition", partition, LARGEST_PARTITION),
        _number("offset", offset, LARGEST_OFFSET),
    )


def _number(name: str, text: str, largest: int) -> int:
    if not re.fullmatch(r" *[0-9]{1,19} *", text) or (number := int(text)) > largest:
        raise _BadLineError(f"{name} {text[:40]!r}: it is a whole number from 0 to {largest}")
    return number


def _quoted(text: str) -> str:
    return text if _UNQUOTED.fullmatch(text) else '"' + text.replace('"', '""') + '"'
