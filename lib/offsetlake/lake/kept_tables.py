"""Tables and engines that stay open for readers, and the versions at which one reader reads them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deltalake import DeltaTable

from offsetlake.lake.sql.engine import Engine

Open = Callable[[str, int | None], DeltaTable]
Versions = Mapping[str, int]


class KeptTables:
    """Tables and engines that stay open until other versions are read; several threads may share them."""

    def __init__(self) -> None:
        self._tables: dict[str, DeltaTable] = {}
        self._engines: dict[tuple[str, ...], tuple[Versions, Engine]] = {}

    def table(self, name: str, version: int, open_table: Open) -> DeltaTable:
        """Return a table at a version; `open_table` opens it if it is not open."""
        kept = self._tables.get(name)
        if kept is None or kept.version() != version:
            self._tables[name] = kept = open_table(name, version)
        return kept

    def engine(self, names: tuple[str, ...], versions: Versions, create: Callable[[], Engine]) -> Engine:
        """Return an engine over named tables and views at some versions; `create` returns a new one.

        To create and to drop an engine takes as long as to plan a query.
        """
        kept = self._engines.get(names)
        if kept is None or kept[0] != versions:
            self._engines[names] = kept = versions, create()
        return kept[1]


@dataclass(frozen=True, slots=True)
class PinnedTables:
    """The tables of a lake at the versions that they had when a reader began; their logs are not listed again."""

    kept: KeptTables
    versions: Versions

    def table(self, name: str, version: int | None, open_table: Open) -> DeltaTable:
        """Return a table at the version that it had, or at another one, which does not stay open."""
        pinned = self.versions.get(name)
        if pinned is None or version not in (None, pinned):
            return open_table(name, version)
        return self.kept.table(name, pinned, open_table)

    def engine(self, names: tuple[str, ...], create: Callable[[], Engine]) -> Engine:
        """Return an engine over named tables and views at the versions that they had."""
        return self.kept.engine(names, self.versions, create)
