"""What has to hold of a lake: suites of expectations, read from `schemas/expectations/`, and what breaks them.

A suite is one of Great Expectations, in TOML. Each expectation is about a column that counts the rows a query of ours
finds, its `meta.broken_by`; the queries are asked of pinned versions of the tables, a few log partitions at a time, and
of history only what is new, unless all of it is asked for. `offsetlake.checks.runner` has the counts judged.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offsetlake.errors import BadRequest
from offsetlake.lake import runs
from offsetlake.lake.definitions import TABLES
from offsetlake.lake.lake import Lake
from offsetlake.lake.portions import Portion, portions
from offsetlake.lake.select import readable, select_at
from offsetlake.util.escaping import visible
from offsetlake.util.resources import resource

MOST_COUNTED = 1000  # rows: that a rule is broken oftener tells nothing more
SINCE = "{since}"
MAX_ROWS_LOOKED_AT = 4_000_000
"""Of more new rows a gate asks about some log partitions, others each time, unless it is asked for all history."""
NOTHING = "nothing to look at"
_TOLD = 3  # rows
_SUFFIX = ".toml"
_HISTORY = (
    "offset_commits",
    "transaction_markers",
    "group_records",
    "share_state_records",
    "quarantine",
    "audit_events",
)
_STATE = ("offsets", "pending_offsets", "groups", "group_members")
_BY_LOG_PARTITION = (*_HISTORY[:3], *_STATE, "tombstones", "alterations")
_ROWS_AT_ONCE = 1 << 17  # fewer than other queries: Great Expectations takes its share of the memory
_COMPACTED = "SELECT coalesce(max(through_run), 0) AS run_id FROM runs WHERE job = 'compact'"
_STRIDE = 7919  # a prime: successive compactions have parts of the log sampled that are far from each other
_CHANGED = """
SELECT DISTINCT stretch['partition'] AS log_partition FROM (
  SELECT unnest(ranges) AS stretch FROM runs WHERE job = 'ingest' AND run_id > {since}
) WHERE stretch['topic'] = '__consumer_offsets' AND stretch['end'] > stretch['start'] ORDER BY log_partition"""

Advance = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Expectation:
    """One rule of a suite: `broken_by` is the query for the rows that break it.

    It runs over a few log partitions at a time, or over all at once if `whole`.
    """

    type: str
    kwargs: Mapping[str, Any]
    description: str
    table: str
    broken_by: str
    whole: bool

    @property
    def column(self) -> str:
        """Name under which the rows that break it are counted."""
        return str(self.kwargs["column"])


@dataclass(frozen=True, slots=True)
class Suite:
    """The rules of one gate. In its queries SINCE stands for the ingest run after which history is asked about."""

    name: str
    expectations: tuple[Expectation, ...]
    new_since: str
    """The query for the ingest run after which history is new; empty where history is not asked about."""
    changed_only: bool
    """Whether of the state tables only log partitions with new history are asked about."""

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
    sampled: str = ""
    """Which part of the table was looked at, in words; empty if it was all that was to be looked at."""

    def __str__(self) -> str:
        if not self.rows:
            return f"none of {self.size:,} rows{self.sampled and f', {self.sampled}'}" if self.size else NOTHING
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
    meta = stored["meta"]

    def expectation(each: Mapping[str, Any]) -> Expectation:
        query = f"WITH {meta['with']} {each['meta']['broken_by']}"
        whole = each["meta"].get("whole", False)
        return Expectation(each["type"], each["kwargs"], each["description"], each["meta"]["table"], query, whole)

    expectations = tuple(map(expectation, stored["expectations"]))
    return Suite(stored["name"], expectations, meta.get("since", ""), meta.get("changed_only", False))


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


def first_run(lake: Lake, suite: Suite, versions: Mapping[str, int], held_back: int | None = None) -> int:
    """Return the ingest run after which a gate asks about history: `held_back`, or the last run that is not new."""
    if held_back is not None or not suite.new_since:
        return held_back or 0
    return int(select_at(lake, suite.new_since, {"runs": versions["runs"]})["run_id"][0].as_py())


def evidence(
    lake: Lake,
    suite: Suite,
    versions: Mapping[str, int],
    since: int,
    max_rows: int | None = None,
    advance: Advance = lambda _done, _total: None,
) -> list[Evidence]:
    """Look for what breaks each expectation of a suite; LakeUnusable where a version cannot be read.

    Of history only the records of ingest runs after `since` are asked about. If these and the state they are compared
    with have more than about `max_rows` rows, some log partitions are asked about, others after each compaction.
    `advance` is called with the number of rows looked at and the number of all.
    """
    at = {table: versions[table] for table in suite.tables}
    counted = {each.table: f"SELECT count(*) AS size FROM {each.table}" for each in suite.expectations}  # noqa: S608
    sizes = {table: select_at(lake, sql, {table: at[table]})["size"][0].as_py() for table, sql in counted.items()}
    through = select_at(lake, _COMPACTED, {"runs": at["runs"]})["run_id"][0].as_py()
    history = {table: f"ingest_run > {since} AND ingest_run <= {through}" for table in _HISTORY if table in at}
    found: dict[str, list[Mapping[str, Any]]] = {each.column: [] for each in suite.expectations}
    _look(lake, [each for each in suite.expectations if each.whole], at, history, since, found)
    in_parts = [each for each in suite.expectations if not each.whole]
    by_partition = {table: history.get(table, "true") for table in _BY_LOG_PARTITION if table in at}
    if suite.changed_only and since:
        by_partition |= dict.fromkeys([table for table in _STATE if table in at], _changed(lake, at, since))
    parts = portions({table: lake.delta_table(table, at[table]) for table in by_partition}, since, _ROWS_AT_ONCE)
    chosen = parts if max_rows is None else _sample(parts, through, max_rows)
    done, total = 0, sum(part.rows for part in chosen)
    for part in chosen:
        only = {table: f"{condition} AND {part.condition}" for table, condition in by_partition.items()}
        _look(lake, in_parts, at, only, since, found)
        done += part.rows
        advance(done, total)
    sampled = f"in {len(chosen)} of {len(parts)} parts of the log" if len(chosen) < len(parts) else ""
    return [
        Evidence(found[each.column], sizes[each.table], "" if each.whole else sampled) for each in suite.expectations
    ]


def _sample(parts: Sequence[Portion], turn: int, max_rows: int) -> list[Portion]:
    """Choose portions with about `max_rows` rows, at least one; others in each turn, so that in time all are chosen."""
    chosen: list[Portion] = []
    for at in range(len(parts)):
        if chosen and sum(part.rows for part in chosen) + parts[at].rows > max_rows:
            break
        chosen.append(parts[(turn * _STRIDE + at) % len(parts)])
    return chosen


def _look(
    lake: Lake,
    expectations: Iterable[Expectation],
    at: Mapping[str, int],
    only: Mapping[str, str],
    since: int,
    found: Mapping[str, list[Mapping[str, Any]]],
) -> None:
    """Add the rows that break expectations, MOST_COUNTED of each at the most, to those found before."""
    with readable(lake, at):
        engine = lake.engine((), at, only)
        for each in expectations:
            if left := MOST_COUNTED - len(found[each.column]):
                query = each.broken_by.replace(SINCE, str(since))
                found[each.column].extend(engine.query(f"{query} LIMIT {left}").to_pylist())


def _changed(lake: Lake, at: Mapping[str, int], since: int) -> str:
    """Return the condition for the log partitions that have new records."""
    changed = select_at(lake, _CHANGED.format(since=since), {"runs": at["runs"]})["log_partition"].to_pylist()
    return f"log_partition IN ({', '.join(map(str, changed))})" if changed else "false"
