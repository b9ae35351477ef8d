"""Reads files of settings, whose values may be secrets."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from offsetlake.errors import BadRequest
from offsetlake.util.text_files import as_utf8

_LINE_END = re.compile(r"\r\n|\r|\n")


def read_properties(file: str, known: Iterable[str]) -> dict[str, str]:
    """Read a properties file: one `name=value` per line; `#` or `!` begins a comment.

    Raises BadRequest, whose message contains no value, for a name that is not known or another invalid line.
    """
    settings = {}
    for number, line in enumerate(_LINE_END.split(read_text(file)), start=1):
        if not line.strip() or line.lstrip()[0] in "#!":
            continue
        name, equals, value = line.partition("=")
        if not equals:  # the message must not contain the line, which may contain a secret
            raise BadRequest(f"{file}, line {number}: expected `name=value`.")
        settings[name.strip()] = value.strip()
    check_known(settings, known, file)
    return settings


def read_text(file: str) -> str:
    """Return the text of a file; raise BadRequest if it cannot be read."""
    try:
        return as_utf8(Path(file).read_bytes()).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"Cannot read {file}: {error}.") from error


def check_known(settings: Mapping[str, object], known: Iterable[str], where: str) -> None:
    """Raise BadRequest if a name is not known; `where` is where the settings were read."""
    if unknown := sorted(set(settings) - {*known}):
        raise BadRequest(f"{where}: unknown {', '.join(unknown)}. Known: {', '.join(known)}.")
