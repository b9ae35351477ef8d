"""What has to hold of a lake: suites of expectations, read from `schemas/expectations/`, and what breaks them.

A suite is one of Great Expectations, in TOML. Each expectation is about a column that counts the rows a query of ours
finds, its `meta.broken_by`; the queries are asked of pinned versions of the tables. `offsetlake.audit.checks` has the
counts judged.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offsetlake.errors import BadRequest
from offsetlake.escaping import visible
from offsetlake.lake import runs
from offsetlake.lake.definitions import TABLES
from offsetlake.lake.lake import Lake
from offsetlake.lake.select import select_at
from offsetlake.resources import resource

MOST_COUNTED = 1000  # rows: that a rule is broken oftener tells nothing more
HELD_BACK = "{held_back}"
NOTHING = "nothing to look at"
_TOLD = 3  # rows
_SUFFIX = ".toml"


@dataclass(frozen=True, slots=True)
class Expectation:
    """One rule of a suite: `broken_by` is the query for the rows that break it."""

    type: str
    kwargs: Mapping[str, Any]
    description: str
    table: str
    broken_by: str

    @property
    def column(self) -> str:
        """Name under which the rows that break it are counted."""
        return str(self.kwargs["column"])


@dataclass(frozen=True, slots=True)
class Suite:
    """The rules of one gate. In its queries HELD_BACK stands for what `offsetlake.audit.gates` has in mind."""

    name: str
    expectations: tuple[Expectation, ...]
    new_since: str
    """The query for the run of ingest behind which history is asked about; empty where all of it is."""

    @property
    def tables(self) -> list[str]:
        """Tables the queries name."""
        words = {word for each in self.expectations for word in re.findall(r"\w+", each.broken_by)}
        return [table for table in TABLES if table in words]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What breaks an expectation: rows, MOST_COUNTED at the most; `size` is how many its table has."""

    rows: Sequence[Mapping[str, Any]]
    size: int

    def __str__(self) -> str:
        if not self.rows:
            return f"none of {self.size:,} rows" if self.size else NOTHING
        count = f"{len(self.rows):,}{' or more' if len(self.rows) == MOST_COUNTED else ''}"
        return f"{count} row{'' if count == '1' else 's'}: {'; '.join(map(_told, self.rows[:_TOLD]))}"


def _told(row: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={visible(str(value))}" for name, value in row.items() if value is not None)


def read_suites(names: Sequence[str]) -> list[Suite]:
    """Read the suites named, all where none is; BadRequest for one that there is not."""
    files = {file.name.removesuffix(_SUFFIX): file for file in resource("schemas", "expectations").iterdir()}
    if unknown := [name for name in names if name not in files]:
        raise BadRequest(f"there is no suite {unknown[0]!r}; suites are {', '.join(sorted(files))}")
    chosen = dict.fromkeys(names or sorted(files))
    return [_suite(tomllib.loads(files[name].read_text(encoding="utf-8"))) for name in chosen]


def _suite(stored: Mapping[str, Any]) -> Suite:
    shared = stored["meta"]["with"]

    def expectation(each: Mapping[str, Any]) -> Expectation:
        query = f"WITH {shared} {each['meta']['broken_by']}"
        return Expectation(each["type"], each["kwargs"], each["description"], each["meta"]["table"], query)

    new_since = ""
    if HELD_BACK in shared:
        new_since = f"WITH {shared.replace(HELD_BACK, 'NULL')} SELECT run_id FROM new_since"  # noqa: S608
    return Suite(stored["name"], tuple(map(expectation, stored["expectations"])), new_since)


def pinned(lake: Lake, suites: Iterable[Suite], named: Mapping[str, int]) -> dict[str, int]:
    """Give the Delta version of each table that the suites look at: as named, else that of now.

    All have to be of one moment: beside an older version the others must be named too. Raises BadRequest where they are
    not, or one is not there yet; LakeBusy where a job that writes to them has not finished.
    """
    of_all = [suite.tables for suite in suites]
    tables = [table for table in TABLES if any(table in of for of in of_all)]
    if unknown := named.keys() - {*TABLES}:
        raise BadRequest(f"there is no table {min(unknown)!r}; tables are {', '.join(TABLES)}")
    left = [table for table in tables if table not in named]
    now = _at_rest(lake, tables) if left else lake.versions(*tables)
    for table in tables:
        version = named.get(table, now[table])
        if version > now[table]:
            raise BadRequest(f"there is no version {version} of {table} yet: it is at {now[table]}")
        if version < now[table] and left:
            raise BadRequest(
                f"{table} is at version {now[table]} by now: beside its version {version} name those of then of "
                f"{', '.join(left)} too"
            )
    return {table: named.get(table, now[table]) for table in tables}


def _at_rest(lake: Lake, tables: Sequence[str]) -> dict[str, int]:
    """Read the versions of now while no job writes: neither before nor behind may a run be unfinished."""
    runs.refuse_unfinished(lake, "still runs or was cut short")
    versions = lake.versions(*tables)
    runs.refuse_unfinished(lake, "still runs or was cut short")
    return versions


def evidence(lake: Lake, suite: Suite, versions: Mapping[str, int], held_back: int | None = None) -> list[Evidence]:
    """Look for what breaks each expectation of a suite; LakeUnusable where a version cannot be read.

    Of history since the ingest with the run number `held_back`, or else what the newest compaction took in.
    """
    since = "NULL" if held_back is None else str(held_back)
    at = {table: versions[table] for table in suite.tables}
    counted = {each.table: f"SELECT count(*) AS size FROM {each.table}" for each in suite.expectations}  # noqa: S608
    sizes = {table: select_at(lake, sql, {table: at[table]})["size"][0].as_py() for table, sql in counted.items()}
    return [
        Evidence(select_at(lake, f"{query} LIMIT {MOST_COUNTED}", at).to_pylist(), sizes[each.table])
        for each in suite.expectations
        for query in [each.broken_by.replace(HELD_BACK, since)]
    ]
