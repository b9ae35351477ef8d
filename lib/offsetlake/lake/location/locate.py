"""Finds the location that a person names."""

import os
import re
from pathlib import Path
from urllib.parse import unquote

from offsetlake.errors import BadRequest
from offsetlake.lake.location.folder import Folder
from offsetlake.lake.location.location import Location

SCHEMES = ("s3", "gs", "abfss")
LakeLocation = str | Path | Location
"""What functions take as a lake."""
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # `Path` makes one slash of two
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}|\\")


def locate(lake: LakeLocation) -> Location:
    """Return the location of a lake: a folder, or a URI of SCHEMES; raise BadRequest for any other URI."""
    if isinstance(lake, Location):
        return lake
    uri = _URI.match(str(lake))
    if not uri:
        return Folder(_usable(Path(lake)))
    scheme, _, rest = str(lake).partition("://")
    if scheme not in SCHEMES or not rest.strip("/"):
        raise BadRequest(
            f"Invalid lake {str(lake)!r}: a lake is a folder, or a bucket or a folder in one by its URI, such as "
            f"s3://BUCKET/lake; schemes are {', '.join(SCHEMES)}."
        )
    from offsetlake.lake.location.object_store import ObjectStore  # noqa: PLC0415 - folders do not need its client

    # In a URI, `#` and `?` end the path: without their escapes, the lake would be in the folder before them.
    return ObjectStore(f"{scheme}://{rest.strip('/')}".replace("#", "%23").replace("?", "%3F"))


def _usable(folder: Path) -> Path:
    """Return the folder of a lake; raise BadRequest if delta-rs would take it for another one."""
    _refuse_escapes(str(folder), os.path.realpath(folder))
    return folder


def _refuse_escapes(lake: str, path: str) -> None:
    """Raise BadRequest if a path contains what delta-rs decodes to another character, before anything is written."""
    if escape := _ESCAPE.search(path):
        decoded = "/" if escape[0] == "\\" else unquote(escape[0])
        raise BadRequest(
            f"Invalid lake {lake!r}: its path contains {escape[0]!r}, which Delta readers take for {decoded!r}: name a "
            "location without backslashes, and without a percent sign before two hexadecimal digits. A log may be in "
            "such a folder."
        )
