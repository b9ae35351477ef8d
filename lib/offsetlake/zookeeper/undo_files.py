"""Files with what znodes contained before offsets were written to them, to undo that.

Each line is a JSON object: `path`, the path of the znode without the chroot; `previous`, its content before, and
`content`, the content that was to be written. Each character of a content is a byte (ISO 8859-1); null is no znode.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from offsetlake.errors import BadRequest
from offsetlake.util.atomic_files import replacing
from offsetlake.zookeeper.active_consumers import ROOT
from offsetlake.zookeeper.writing import OffsetChange

_ENCODING = "iso-8859-1"


class Undo(NamedTuple):
    """The changes that restore the previous contents, and the contents that the znodes must have, by path."""

    changes: list[OffsetChange]
    expected: Mapping[str, bytes | None]


def save_undo(changes: Sequence[OffsetChange], path: Path) -> None:
    """Write the planned changes to a new file and to the disk; raise BadRequest if that fails or the file exists."""
    if path.exists():
        raise BadRequest(f"Cannot write {path}: the file exists.")
    try:
        with replacing(path) as file, file.open("w", encoding="utf-8") as lines:
            for change in changes:
                if change.outcome == "planned":
                    line = {"path": change.path, "previous": _text(change.previous), "content": _text(change.content)}
                    lines.write(json.dumps(line) + "\n")
    except OSError as error:
        raise BadRequest(f"Cannot write {path}: {error.strerror or error}.") from error


def load_undo(path: Path) -> Undo:
    """Read a file of `save_undo`; raise BadRequest that names the first line that is invalid."""
    changes, expected = [], {}
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    change, content = _parsed(line)
                except (ValueError, KeyError, TypeError) as error:
                    raise BadRequest(f"Invalid file {path}: line {number} is not a change of an offset.") from error
                changes.append(change)
                expected[change.path] = content
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error
    return Undo(changes, expected)


def refuse_changed(undo: Undo) -> None:
    """After `compare`, refuse to restore what znodes contained if they contain something else than was written."""
    for change in undo.changes:
        if change.outcome == "planned" and change.previous != undo.expected[change.path]:
            now, then = (_text(content) for content in (change.previous, undo.expected[change.path]))
            change.refuse(f"{change.path} contains {now!r} now, not {then!r}")


def _parsed(line: str) -> tuple[OffsetChange, bytes | None]:
    found = json.loads(line)
    empty, consumers, group, offsets, topic, partition = found["path"].split("/")
    if (empty, f"/{consumers}", offsets) != ("", ROOT, "offsets"):
        raise ValueError(found["path"])
    return OffsetChange(group, topic, int(partition), _bytes(found["previous"])), _bytes(found["content"])


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(_ENCODING)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode(_ENCODING)
