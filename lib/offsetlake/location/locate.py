"""Finds the location that a person names."""

import re
from pathlib import Path

from offsetlake.errors import BadRequest
from offsetlake.location.folder import Folder
from offsetlake.location.location import Location

SCHEMES = ("s3", "gs", "abfss")
LakeLocation = str | Path | Location
"""What functions take as a lake."""
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # `Path` makes one slash of two


def locate(lake: LakeLocation) -> Location:
    """Return the location of a lake: a folder, or a URI of SCHEMES; raise BadRequest for any other URI."""
    if isinstance(lake, Location):
        return lake
    uri = _URI.match(str(lake))
    if not uri:
        return Folder(Path(lake))
    scheme, _, rest = str(lake).partition("://")
    if scheme not in SCHEMES or not rest.strip("/"):
        raise BadRequest(
            f"Invalid lake {str(lake)!r}: a lake is a folder, or a bucket or a folder in one by its URI, such as "
            f"s3://BUCKET/lake; schemes are {', '.join(SCHEMES)}."
        )
    from offsetlake.location.object_store import ObjectStore  # noqa: PLC0415 - folders do not need its client

    return ObjectStore(f"{scheme}://{rest.strip('/')}")
