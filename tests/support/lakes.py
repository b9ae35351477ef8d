"""Empty lakes for tests: copies of a single one, because creating all tables of a lake takes a tenth of a second."""

import tempfile
from functools import cache
from pathlib import Path

from offsetlake.lake.lake import Lake


def new_lake(location: str | Path) -> Lake:
    """Return a lake for writing, as `Lake.create` does; a new one in a folder is a copy of an empty lake."""
    if "://" in str(location) or Path(location).exists():
        return Lake.create(location)
    for name, content in _empty_lake().items():
        path = Path(location) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return Lake.open(location)


@cache
def _empty_lake() -> dict[Path, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder) / "lake"
        Lake.create(lake)
        return {path.relative_to(lake): path.read_bytes() for path in lake.rglob("*") if path.is_file()}
