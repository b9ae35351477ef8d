"""Where a lake is: for now, a folder."""

import re
from pathlib import Path

from offsetlake.errors import BadRequest

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # `Path` makes one slash of two


def folder_of(lake: str | Path) -> Path:
    """Return the folder of a lake; raise BadRequest for a URI, such as that of an object store."""
    if _URI.match(str(lake)):
        raise BadRequest(f"Invalid lake {str(lake)!r}: a lake is a folder; object stores are not supported.")
    return Path(lake)
