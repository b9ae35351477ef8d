"""Tables that stay open for readers, and the versions at which one reader reads them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deltalake import DeltaTable

Open = Callable[[str, int | None], DeltaTable]


class KeptTables:
    """Tables that stay open until another version of them is read; several threads may share them."""

    def __init__(self) -> None:
        self._tables: dict[str, DeltaTable] = {}

    def table(self, name: str, version: int, open_table: Open) -> DeltaTable:
        """Return a table at a version; `open_table` opens it if it is not open."""
        kept = self._tables.get(name)
        if kept is None or kept.version() != version:
            self._tables[name] = kept = open_table(name, version)
        return kept


@dataclass(frozen=True, slots=True)
class PinnedTables:
    """The tables of a lake at the versions that they had when a reader began; their logs are not listed again."""

    kept: KeptTables
    versions: Mapping[str, int]

    def table(self, name: str, version: int | None, open_table: Open) -> DeltaTable:
        """Return a table at the version that it had, or at another one, which does not stay open."""
        pinned = self.versions.get(name)
        if pinned is None or version not in (None, pinned):
            return open_table(name, version)
        return self.kept.table(name, pinned, open_table)
