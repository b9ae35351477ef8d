"""Expectations about a lake: the suites in `schemas/expectations/`, and the rows that violate them.

A suite is a suite of Great Expectations, in TOML. Each expectation is about a column that counts the rows that a query,
its `meta.broken_by`, returns. The queries run over pinned versions of the tables, some log partitions at a time, and
over new history only, unless all of it is requested. `offsetlake.pipeline.checks.runner` has Great Expectations
evaluate the counts.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offsetlake.errors import BadRequest
from offsetlake.kafka.placement import partition_for_group
from offsetlake.lake import current_run, runs
from offsetlake.lake.definitions import HISTORY, REDUCED_HISTORY, STATE, TABLES
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.lake.sql.portions import Portion, portions
from offsetlake.lake.sql.select import readable, select_at
from offsetlake.util.escaping import visible
from offsetlake.util.resources import resource

MAX_COUNTED_ROWS = 1000
"""Maximum number of rows that are counted per expectation; more would tell nothing new."""

SINCE = "{since}"
MAX_CHECKED_ROWS = 4_000_000
"""With more new rows than this, a gate checks some of the log partitions, others each time."""
NOTHING = "nothing to check"
_SHOWN_ROWS = 3
_SUFFIX = ".toml"
_BY_LOG_PARTITION = (*REDUCED_HISTORY, *STATE, "tombstones", "alterations")
_BY_GROUP = ("offset_commits", "group_records")
_ROWS_AT_ONCE = 1 << 17  # fewer than in other queries, because Great Expectations needs memory too
_COMPACTED = "SELECT coalesce(max(through_run), 0) AS run_id FROM runs WHERE job = 'compact'"
_MOVED = """
SELECT group_id, array_agg(DISTINCT log_partition) AS log_partitions FROM (
  SELECT group_id, log_partition FROM offset_commits UNION ALL SELECT group_id, log_partition FROM group_records
) GROUP BY group_id HAVING count(DISTINCT log_partition) > 1
"""
_STRIDE = 7919  # a prime, so that successive compactions sample distant parts of the log
_CHANGED = """
SELECT DISTINCT stretch['partition'] AS log_partition FROM (
  SELECT unnest(ranges) AS stretch FROM runs WHERE job = 'ingest' AND run_id > {since}
) WHERE stretch['topic'] IN ('__consumer_offsets', '__share_group_state') AND stretch['end'] > stretch['start']
ORDER BY log_partition"""

Advance = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expectation of a suite; `broken_by` is the query for the rows that violate it.

    The query runs over some log partitions at a time, or over all at once if `whole` is set.
    """

    type: str
    kwargs: Mapping[str, Any]
    description: str
    table: str
    broken_by: str
    whole: bool

    @property
    def column(self) -> str:
        """Name of the column that counts the violating rows."""
        return str(self.kwargs["column"])


@dataclass(frozen=True, slots=True)
class Suite:
    """The expectations of a gate. In its queries, SINCE is the ingest run after which history is checked."""

    name: str
    expectations: tuple[Expectation, ...]
    new_since: str
    """The query for the ingest run after which history is new; empty if history is not checked."""
    changed_only: bool
    """Whether only log partitions with new history are checked in the state tables."""

    @property
    def tables(self) -> list[str]:
        """The tables that the queries name."""
        words = {word for expectation in self.expectations for word in re.findall(r"\w+", expectation.broken_by)}
        return [table for table in TABLES if table in words]


@dataclass(frozen=True, slots=True)
class Evidence:
    """At most MAX_COUNTED_ROWS rows that violate an expectation; `size` is the number of rows of its table."""

    rows: Sequence[Mapping[str, Any]]
    size: int
    sampled: str = ""
    """A description of the part of the table that was checked; empty if it is all that had to be checked."""

    def __str__(self) -> str:
        if not self.rows:
            return f"none of {self.size:,} rows{self.sampled and f', {self.sampled}'}" if self.size else NOTHING
        count = f"{len(self.rows):,}{' or more' if len(self.rows) == MAX_COUNTED_ROWS else ''}"
        return f"{count} row{'' if count == '1' else 's'}: {'; '.join(map(_formatted, self.rows[:_SHOWN_ROWS]))}"


def _formatted(row: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={visible(str(value))}" for name, value in row.items() if value is not None)


def read_suites(names: Sequence[str]) -> list[Suite]:
    """Return the named suites, by default all; raise BadRequest for an unknown name."""
    files = {file.name.removesuffix(_SUFFIX): file for file in resource("schemas", "expectations").iterdir()}
    if unknown := [name for name in names if name not in files]:
        raise BadRequest(f"there is no suite {unknown[0]!r}; suites are {', '.join(sorted(files))}")
    chosen = dict.fromkeys(names or sorted(files))
    return [_suite(tomllib.loads(files[name].read_text(encoding="utf-8"))) for name in chosen]


def _suite(stored: Mapping[str, Any]) -> Suite:
    meta = stored["meta"]

    def parsed(entry: Mapping[str, Any]) -> Expectation:
        query = f"WITH {meta['with']} {entry['meta']['broken_by']}"
        whole = entry["meta"].get("whole", False)
        return Expectation(entry["type"], entry["kwargs"], entry["description"], entry["meta"]["table"], query, whole)

    expectations = tuple(map(parsed, stored["expectations"]))
    return Suite(stored["name"], expectations, meta.get("since", ""), meta.get("changed_only", False))


def pinned(lake: Lake, suites: Iterable[Suite], named: Mapping[str, int]) -> dict[str, int]:
    """Return the Delta version of each table that the suites check: the named version or the newest one.

    The versions must belong to one state of the lake: with an older version of a table, those of the other tables must
    be named too. Raises BadRequest if they are not, or if a version does not exist yet, and LakeBusy if a job that
    writes to the tables has not finished.
    """
    named_by_suites = {table for suite in suites for table in suite.tables}
    tables = [table for table in TABLES if table in named_by_suites]
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
                f"{table} is at version {now[table]} by now: with its version {version}, also name the versions of "
                f"that time of {', '.join(left)}"
            )
    return {table: named.get(table, now[table]) for table in tables}


def _at_rest(lake: Lake, tables: Sequence[str]) -> dict[str, int]:
    """Return the newest versions while no job writes: no run may be unfinished before or after they are read."""
    current_run.refuse_unfinished(lake, "is running or was interrupted")
    versions = lake.versions(*tables)
    current_run.refuse_unfinished(lake, "is running or was interrupted")
    return versions


def first_run(lake: Lake, suite: Suite, versions: Mapping[str, int], held_back: int | None = None) -> int:
    """Return the ingest run after which a gate checks history: `held_back`, or the last run that is not new."""
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
    """Return the rows that violate each expectation of a suite; raise LakeUnusable if a version cannot be read.

    Only the history of ingest runs after `since` is checked. If it and the state it is compared with have more than
    about `max_rows` rows, some log partitions are checked, others after each compaction. `advance` is called with the
    number of rows checked and the number of all rows.
    """
    pins = {table: versions[table] for table in suite.tables}
    tables = dict.fromkeys(expectation.table for expectation in suite.expectations)
    sizes = {table: _size(lake, table, versions[table]) for table in tables}
    through = select_at(lake, _COMPACTED, {"runs": pins["runs"]})["run_id"][0].as_py()
    history = {table: f"ingest_run > {since} AND ingest_run <= {through}" for table in HISTORY if table in pins}
    violations: dict[str, list[Mapping[str, Any]]] = {expectation.column: [] for expectation in suite.expectations}
    _collect(
        lake, [expectation for expectation in suite.expectations if expectation.whole], pins, history, since, violations
    )
    if former := _in_force(lake, pins):  # records of log partitions that do not coordinate their group left no state
        history |= {table: f"{history[table]} AND {former}" for table in _BY_GROUP if table in history}
    in_parts = [expectation for expectation in suite.expectations if not expectation.whole]
    by_partition = {table: history.get(table, "true") for table in _BY_LOG_PARTITION if table in pins}
    if suite.changed_only and since:
        by_partition |= dict.fromkeys([table for table in STATE if table in pins], _changed(lake, pins, since))
    parts = portions({table: lake.delta_table(table, pins[table]) for table in by_partition}, since, _ROWS_AT_ONCE)
    chosen = parts if max_rows is None else _sample(parts, through, max_rows)
    done, total = 0, sum(part.rows for part in chosen)
    for part in chosen:
        only = {table: f"{condition} AND {part.condition}" for table, condition in by_partition.items()}
        _collect(lake, in_parts, pins, only, since, violations)
        done += part.rows
        advance(done, total)
    sampled = f"in {len(chosen)} of {len(parts)} parts of the log" if len(chosen) < len(parts) else ""
    return [
        Evidence(violations[expectation.column], sizes[expectation.table], "" if expectation.whole else sampled)
        for expectation in suite.expectations
    ]


def _in_force(lake: Lake, pins: Mapping[str, int]) -> str:
    """Return the condition for records in the log partition that coordinates their group.

    Empty unless partitions were added to `__consumer_offsets`, and groups have records in several log partitions.
    """
    ingested = runs.last_run(lake, "ingest")
    if not (ingested and ingested.grown and {*_BY_GROUP} <= pins.keys()):
        return ""
    count = ingested.log_partitions or 1
    conditions = []
    for row in select_at(lake, _MOVED, {table: pins[table] for table in _BY_GROUP}).to_pylist():
        name, numbers = row["group_id"], row["log_partitions"]
        number = partition_for_group(name, count)
        current = number if number in numbers else max(numbers)
        conditions.append(f"(group_id <> {quoted(name)} OR log_partition = {current})")
    return " AND ".join(conditions)


def _size(lake: Lake, table: str, version: int) -> int:
    """Return the number of rows of a table at a Delta version."""
    size = select_at(lake, f"SELECT count(*) AS size FROM {table}", {table: version})["size"][0].as_py()  # noqa: S608
    return int(size)


def _sample(parts: Sequence[Portion], turn: int, max_rows: int) -> list[Portion]:
    """Choose at least one portion and about `max_rows` rows; each turn chooses others, so that all get chosen."""
    chosen: list[Portion] = []
    for number in range(len(parts)):
        if chosen and sum(part.rows for part in chosen) + parts[number].rows > max_rows:
            break
        chosen.append(parts[(turn * _STRIDE + number) % len(parts)])
    return chosen


def _collect(
    lake: Lake,
    expectations: Iterable[Expectation],
    pins: Mapping[str, int],
    only: Mapping[str, str],
    since: int,
    violations: Mapping[str, list[Mapping[str, Any]]],
) -> None:
    """Add the rows that violate expectations to those found before, at most MAX_COUNTED_ROWS per expectation."""
    with readable(lake, pins):
        engine = lake.engine((), pins, only)
        for expectation in expectations:
            if left := MAX_COUNTED_ROWS - len(violations[expectation.column]):
                query = expectation.broken_by.replace(SINCE, str(since))
                violations[expectation.column].extend(engine.query(f"{query} LIMIT {left}").to_pylist())


def _changed(lake: Lake, pins: Mapping[str, int], since: int) -> str:
    """Return the condition for the log partitions with new records."""
    changed = select_at(lake, _CHANGED.format(since=since), {"runs": pins["runs"]})["log_partition"].to_pylist()
    return f"log_partition IN ({', '.join(map(str, changed))})" if changed else "false"
