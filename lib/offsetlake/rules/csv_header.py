"""Finds the columns of a CSV file of offsets by the header in its first line, which the CSV of Kafka's tool lacks.

Names are compared without case, blanks and punctuation, so that `Group ID` and `group_id` are the same. Columns that
the command `offsets` and Kafka's tool write besides are ignored.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

NAMES = {
    "group": ("group", "groupid"),
    "topic": ("topic",),
    "partition": ("partition",),
    "offset": ("offset", "committedoffset", "newoffset", "currentoffset"),
}
"""The columns of offsets in the order of Kafka's CSV, and the names that each can have."""

IGNORED = (
    "log_partition", "log_offset", "log_timestamp", "leader_epoch", "metadata", "commit_timestamp", "expire_timestamp",
    "topic_id", "record_type", "value_version", "producer_id", "producer_epoch", "log_end_offset", "lag", "consumer_id",
    "host", "client_id",
)  # fmt: skip

_IGNORED = frozenset(name.replace("_", "") for name in IGNORED)
_PUNCTUATION = re.compile(r"[\W_]+")
_INTEGER = re.compile(r"\s*-?[0-9]+\s*")
_MIN_COLUMNS = 3
_MAX_CHARACTERS = 1000


class HeaderError(Exception):
    """The first line of a file names other columns."""


@dataclass(frozen=True, slots=True)
class Header:
    """The columns of a file.

    | Field    | Description |
    |----------|-------------|
    | width    | The number of columns. |
    | places   | The indexes of group, topic, partition and offset; of the last three if there is no group. |
    | ignored  | The names of the columns that are ignored. |
    """

    width: int
    places: Sequence[int]
    ignored: Sequence[str]


def is_header(fields: Sequence[str]) -> bool:
    """Check whether the fields of the first line are names of columns: none is an integer."""
    known = {name for names in NAMES.values() for name in names}
    return not any(map(_INTEGER.fullmatch, fields)) and (
        len(fields) >= _MIN_COLUMNS or any(_plain(field) in known for field in fields)
    )


def read_header(fields: Sequence[str], *, needs_group: bool) -> Header:
    """Return the columns that a header names; raise HeaderError for missing, repeated and unknown columns."""
    plain = [*map(_plain, fields)]
    places = {column: [i for i, name in enumerate(plain) if name in names] for column, names in NAMES.items()}
    problems = []
    if missing := [column for column in NAMES if not places[column] and (column != "group" or needs_group)]:
        problems.append(f"no column {' and no column '.join(missing)}")
    if repeated := [column for column in NAMES if len(places[column]) > 1]:
        problems.append(f"several columns for {' and for '.join(repeated)}")
    used = {place for found in places.values() for place in found}
    others = [i for i, name in enumerate(plain) if i not in used and name]
    if unknown := [fields[i].strip() for i in others if plain[i] not in _IGNORED]:
        problems.append(f"unknown {'column' if len(unknown) == 1 else 'columns'} {', '.join(unknown)}")
    if problems:
        expected = (
            "group, topic, partition, offset" if needs_group else "topic, partition, offset, and optionally group"
        )
        found = ", ".join(field.strip() for field in fields)
        raise HeaderError(f"{'; '.join(problems)}: expected {expected}, found {found}"[:_MAX_CHARACTERS])
    return Header(len(fields), [found[0] for found in places.values() if found], [fields[i].strip() for i in others])


def _plain(name: str) -> str:
    return _PUNCTUATION.sub("", name).casefold()
