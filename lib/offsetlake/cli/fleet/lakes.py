"""The file that lists the lakes of a fleet, one for each cluster."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from offsetlake.cli.config import KEYS, Entry, parsed_toml
from offsetlake.errors import BadRequest
from offsetlake.lake.location.locate import locate
from offsetlake.util.patterns import pattern_problem
from offsetlake.util.properties import read_text

MAX_NAME_LENGTH = 100
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME_LENGTH - 1}}}")
_KEYS = tuple(key for key in KEYS if key != "format")


def read_lakes(file: str) -> dict[str, Entry]:
    """Read a file of lakes: a table [lakes.NAME] for each, with the keys of a settings file except `format`.

    The values are read when the lake is opened, except for `lake`, which every table must have.

    Raises:
        BadRequest: The file cannot be read or lists no lake; a name or a key is invalid; or two lakes have the same
            place, or names that differ only in case.

    """
    content = parsed_toml(read_text(file), file)
    if unknown := sorted(content.keys() - {"lakes"}):
        raise BadRequest(f"{file}: unknown {', '.join(unknown)}. Known: a table [lakes.NAME] for each lake.")
    tables = content.get("lakes")
    if not isinstance(tables, dict) or not tables:
        raise BadRequest(f"{file} lists no lake: expected a table [lakes.NAME] for each lake.")
    lakes = {name: _entry(file, name, table) for name, table in tables.items()}
    _check_distinct(file, {name: name.casefold() for name in lakes}, "names that differ only in case")
    _check_distinct(file, {name: _place(entry) for name, entry in lakes.items()}, "the same place")
    return lakes


def selected(lakes: Mapping[str, Entry], pattern: str | None) -> dict[str, Entry]:
    """Return the lakes whose names match a shell pattern, all without one; raise BadRequest if none matches."""
    if pattern is None:
        return {**lakes}
    if problem := pattern_problem(pattern):
        raise BadRequest(f"Invalid --cluster: {problem}.")
    if not (matching := {name: entry for name, entry in lakes.items() if fnmatchcase(name, pattern)}):
        raise BadRequest(f"No cluster matches {pattern!r}: the clusters are {', '.join(lakes)}.")
    return matching


def _entry(file: str, name: str, table: Any) -> Entry:
    place = f"{file}, lake {name!r}"
    if not _NAME.fullmatch(name):
        raise BadRequest(
            f"{place}: invalid name. A name has at most {MAX_NAME_LENGTH} letters, digits, dots, hyphens and "
            "underscores, and begins with a letter or a digit."
        )
    if not isinstance(table, dict) or not isinstance(table.get("lake"), str):
        raise BadRequest(f'{place}: expected a table with a key such as lake = "/lakes/{name}".')
    if unknown := sorted(table.keys() - {*_KEYS}):
        raise BadRequest(f"{place}: unknown {', '.join(unknown)}. Known: {', '.join(_KEYS)}.")
    return Entry(table, place)


def _place(entry: Entry) -> str:
    location = str(locate(entry.table["lake"]))
    return location if "://" in location else str(Path(location).resolve())


def _check_distinct(file: str, keys: Mapping[str, str], what: str) -> None:
    first: dict[str, str] = {}
    for name, key in keys.items():
        if (other := first.setdefault(key, name)) != name:
            raise BadRequest(f"{file}: the lakes {other!r} and {name!r} have {what}.")
