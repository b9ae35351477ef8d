"""The small JSON files of a lake: plans of runs, and what jobs remember between runs."""

import json
from typing import Any

from offsetlake.errors import LakeUnusable
from offsetlake.lake.location.location import Lease, Location

VERIFIED = "verified.json"
_FILES_LOST = {
    VERIFIED: "remove it, and the next command examines all commits of other programs again",
    "gates.json": "remove it, and run `offsetlake check --full`, because it names the history that had failed a check",
    "rejections.json": "restore it from a copy of the lake, or remove it: rejected tombstones are then planned again",
    "dismissals.json": "restore it from a copy of the lake, or remove it: reviews then list again what was rejected",
}
"""What to do if a file is damaged, by its name."""


class SmallFiles:
    """The files of one lake. While the lake is locked, they are listed and read once: nobody else writes them."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._lease: Lease | None = None
        self._names: set[str] | None = None
        self._contents: dict[str, dict[str, Any] | None] = {}

    def lock(self, lease: Lease) -> None:
        """List the files, which only the holder of the lease writes from now on."""
        self._lease, self._names = lease, {*self._location.names()}

    def unlock(self) -> None:
        """Read the files again at their next use."""
        self._lease, self._names, self._contents = None, None, {}

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Replace a file; a kill leaves the old or the new file, never a partial one."""
        if self._lease:
            self._lease.check()
        written = json.dumps(content)
        self._location.replace(name, written.encode())
        if self._names is not None:
            self._names.add(name)
            self._contents[name] = json.loads(written)

    def read(self, name: str) -> dict[str, Any] | None:
        """Return what `write` wrote, or None if there is no such file."""
        if self._names is None:
            return self._read(name)
        if name not in self._contents:
            self._contents[name] = self._read(name) if name in self._names else None
        return self._contents[name]

    def _read(self, name: str) -> dict[str, Any] | None:
        content = self._location.read(name)
        if content is None:
            return None
        try:
            read = json.loads(content)
        except ValueError as error:
            raise self.damaged(name, error) from error
        if not isinstance(read, dict):
            raise self.damaged(name, "it contains no JSON object")
        return read

    def damaged(self, name: str, why: object) -> LakeUnusable:
        """Return the error about a file whose content is not what `write` wrote."""
        remedy = _FILES_LOST.get(name, "restore it from a copy of the lake")
        return LakeUnusable(f"{self._location}/{name} is damaged ({why}): {remedy}")

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        if self._names is None:
            self._location.remove(name)
        elif name in self._names:
            self._location.remove(name)
            self._names.remove(name)
            self._contents.pop(name, None)
