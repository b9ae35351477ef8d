"""Detects commits of other programs before a job or a query reads a table: adapts to them or refuses the table.

A file of the lake contains the version of each table up to which its commits are verified, so that each commit is read
once, however long the history of a table is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from offsetlake.errors import TableChanged
from offsetlake.lake.damage import damaged
from offsetlake.lake.definitions import STATE, current_name, definition
from offsetlake.lake.delta.commits import Commit, Findings, follow, recorded_versions
from offsetlake.lake.delta.log_entries import entry_name
from offsetlake.lake.files import renamed_columns
from offsetlake.lake.foreign.layout import lay_out
from offsetlake.lake.foreign.mending import mend
from offsetlake.lake.kept_tables import KeptTables, PinnedTables
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import LakeLocation
from offsetlake.lake.small_files import VERIFIED
from offsetlake.util.amounts import counted

_TABLES_AT_ONCE = 8
_NAMED = 3  # commits named in a message

WRITABLE = {
    "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors", "invariants",
    "v2Checkpoint",
}  # fmt: skip
"""Table features that deltalake reads and writes; a table that has others cannot be committed to."""


@contextmanager
def writing(lake: Lake, job: str, say: Callable[[str], None]) -> Iterator[None]:
    """Lock the lake for a writing job, and adapt to commits of other programs to its tables.

    Raises LakeBusy as `Lake.lock`, and TableChanged if another program changed rows or columns.
    """
    if lake.locked:  # and adapted
        yield
        return
    with lake.lock(job, say):
        adapt(lake, say)
        yield
        with lake.open_tables() as tables:
            record(lake, tables.verified())


def open_verified(location: LakeLocation) -> Lake:
    """Return a lake for reading as `Lake.open`; also raise TableChanged if another program changed a table."""
    lake = Lake.open(location)
    refuse_changed(lake)
    return lake


class VerifiedLake:
    """Opens a lake for reading again and again: its tables stay open and verified until there are newer versions."""

    def __init__(self, location: LakeLocation) -> None:
        self._location, self._tables = location, KeptTables()
        self._verified: dict[str, int] = {}

    def open(self) -> Lake:
        """Return the lake as `open_verified` does, with its tables at the versions that they have now."""
        lake = Lake.open(self._location)
        versions = lake.versions()
        if versions != self._verified:
            refuse_changed(lake)
            self._verified = versions
        lake.pinned = PinnedTables(self._tables, versions)
        return lake


def refuse_changed(lake: Lake, *tables: str) -> dict[str, Findings]:
    """Return the findings about the named tables, by default all; raise TableChanged if one was changed."""
    found = findings(lake, *tables)
    for table, of_table in found.items():
        if of_table.damaged:
            raise damaged(lake.location, table, of_table.damaged)
        if why := _why_refused(lake, table, of_table):
            raise TableChanged(why)
    if "runs" in found:
        _refuse_older(lake, found)
    return found


def _refuse_older(lake: Lake, found: Mapping[str, Findings]) -> None:
    """Raise TableChanged if a table is older than the newest run left it: a copy may have replaced VERIFIED, too."""
    newest = entry_name(found["runs"].version)
    for table, version in recorded_versions(lake.delta_log("runs").read(newest)).items():
        if table in found and found[table].version < version:
            raise TableChanged(
                f"{_named(lake, table)} cannot be verified because its version is older than {version}, in which the "
                f"newest run left it: an older copy has replaced it: {_remedy(lake, table, found[table])}"
            )


def findings(lake: Lake, *tables: str) -> dict[str, Findings]:
    """Return the findings about the named tables, by default all, since they were verified."""
    verified, names = _verified(lake), tables or (*lake.tables(),)
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        found = pool.map(lambda table: _follow(lake, table, verified.get(table)), names)
        return dict(zip(names, found, strict=True))


def _follow(lake: Lake, table: str, since: int | None) -> Findings:
    with lake.location.errors():
        return follow(lake.table_location(table), lake.delta_log(table), table, since)


def _verified(lake: Lake) -> dict[str, int]:
    """Return the version up to which the commits to each table are verified, by the current names of the tables."""
    stored = lake.files.read(VERIFIED) or {}
    if not all(isinstance(version, int) for version in stored.values()):
        raise lake.files.damaged(VERIFIED, "it contains other values than versions")
    return {current_name(table): version for table, version in stored.items()}


def state_versions(lake: Lake, tables: Sequence[str] = STATE) -> dict[str, int]:
    """Return the versions at which to read state tables: the newest with all rows in state files.

    Raises TableChanged if another program changed one.
    """
    return {table: of_table.readable for table, of_table in refuse_changed(lake, *tables).items()}


def adapt(lake: Lake, say: Callable[[str], None]) -> None:
    """Adapt to commits of other programs to the tables; the caller has the lock of the lake. Raises TableChanged."""
    found = refuse_changed(lake)
    with lake.open_tables() as tables:
        tables.mark_verified({table: of_table.version for table, of_table in found.items()})
        for table, of_table in found.items():
            _adapt(lake, table, of_table, say)
        record(lake, tables.verified())


def _adapt(lake: Lake, table: str, found: Findings, say: Callable[[str], None]) -> None:
    if unknown := foreign_features(lake, table) if found.altered else set():
        raise TableChanged(
            f"{_named(lake, table)} has table features that deltalake cannot write since {found.altered}: "
            f"{', '.join(sorted(unknown))}; remove them with `offsetlake rebuild --table {table}`"
        )
    if found.rearranged:
        files = lay_out(lake, table) if table in STATE else 0
        again = f", and {counted(files, 'file')} rewritten" if files else ""
        say(f"table {table}: {_listed(found.rearranged)} rearranged files and kept all rows: verified{again}")


def record(lake: Lake, versions: Mapping[str, int]) -> None:
    """Record that the commits to these tables are verified up to these versions."""
    former = _verified(lake)
    verified = former | dict(versions)
    with lake.open_tables() as tables:
        tables.mark_verified(versions)
    if verified != former:
        with lake.location.errors():
            lake.files.write(VERIFIED, verified)


def mend_tables(lake: Lake, tables: Iterable[str], say: Callable[[str], None]) -> tuple[str, ...]:
    """Make tables readable whose Delta logs are damaged, see `mend`; return what was done. The lake must be locked."""
    notes = []
    for table in tables:
        if done := mend(lake, table, _verified(lake).get(table, -1)):
            say(done)
            notes.append(done)
            record(lake, lake.versions(table))
    return tuple(notes)


def foreign_features(lake: Lake, table: str) -> set[str]:
    """Return the features of a table with which deltalake cannot commit."""
    protocol = lake.without_rows(table).protocol()
    return {*(protocol.writer_features or ()), *(protocol.reader_features or ())} - WRITABLE


def _why_refused(lake: Lake, table: str, found: Findings) -> str:
    """Return why a table must not be read and what to do, or an empty string if it may be read."""
    if found.missing:
        return f"{_named(lake, table)} cannot be verified {found.missing}: {_remedy(lake, table, found)}"
    if found.changed:
        return (
            f"rows of {_named(lake, table)} were changed by another program, {_listed(found.changed)}: "
            f"{_remedy(lake, table, found)}"
        )
    if found.altered:
        known = [column["name"] for column in definition(table).columns if column["since"] <= lake.version()]
        if why := renamed_columns(lake.without_rows(table), known):
            again = f"run `offsetlake rebuild --table {table}`" if table in STATE else "restore their names"
            return f"{_named(lake, table)} {why}; last altered by {found.altered}: {again}"
    return ""


def _named(lake: Lake, table: str) -> str:
    return f"table {table} of the lake {lake.location}"


def _listed(commits: Sequence[Commit]) -> str:
    more = f" and {len(commits) - _NAMED:,} more" if len(commits) > _NAMED else ""
    return f"{', '.join(map(str, commits[:_NAMED]))}{more}"


def _remedy(lake: Lake, table: str, found: Findings) -> str:
    if table in STATE:
        return f"run `offsetlake rebuild --table {table}`, which rebuilds it from history"
    if found.changed and not found.overlaid:
        uri, version = lake.table_location(table).spark_uri, found.changed[0].version - 1
        back = f"RESTORE TABLE delta.`{uri}` TO VERSION AS OF {version}"
        return f"it cannot be rebuilt; restore it with Spark, {back}, or read the log into a new lake"
    return "it cannot be rebuilt; restore a copy of the lake, or read the log into a new lake"
