"""Queries over the views: rows of a view, optionally of some groups, those that need attention first."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest, NotEnoughMemory
from offsetlake.lake.definitions import REDUCED_HISTORY
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.answers import Answer, PartedAnswer, kept
from offsetlake.lake.sql.engine import Engine, Tables, quoted, spilling
from offsetlake.lake.sql.portions import ROWS_AT_ONCE, Portion, portions
from offsetlake.lake.sql.views import View, needed, views
from offsetlake.queries.selection import check_committed, known_groups
from offsetlake.util.suggestions import did_you_mean

MAX_FIRST_ROWS = 1000  # of an answer that is computed from the keys that have its rows
_MIN_SHARE = 0.01
_MAX_EXCESS = 1.25  # of the rows of a part over those that are compared at once
_MAX_GROUPS_APART = 200  # whose topics and partitions a condition names by group
AGGREGATED_AT_ONCE = ROWS_AT_ONCE << 4  # rows of history for a view without windows: aggregations spill
TURNING_AT_ONCE = ROWS_AT_ONCE << 1  # turning points, which have few columns
_CANDIDATES = 5  # rows of commit_outcomes to sort per row of an answer: some of them never took effect

_GROUPS = "SELECT group_id FROM offset_commits UNION ALL SELECT group_id FROM group_records"


def audit(
    lake: Lake,
    name: str,
    pattern: str | None = None,
    topic: str | None = None,
    since_ms: int | None = None,
    limit: int | None = None,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> Answer:
    """Return rows of a view in its order: of the groups that match `pattern`, of a topic, since an instant, if named.

    A view of history is computed for some log partitions at a time, or some groups of a large one, which bounds
    memory; `advance` is called after each part with the number of records read and the number of all records. Of named
    groups, and of the groups that have the first `limit` rows if these can be found without the view, only their own
    history is read.

    Raises BadRequest for an unknown view, for a pattern or topic if the view has no such column, for a lake without
    history, and for groups or a topic that history does not have; LakeUnusable if an older program made the lake.
    """
    if name not in views():
        known = f" Views are {', '.join(sorted(views()))}."
        raise BadRequest(f"There is no view {name!r}.{did_you_mean(name, views()) or known}")
    view = views()[name]
    if not has_history(lake):
        raise BadRequest(f"the lake {lake.location} contains no history yet: `offsetlake run` reads the log")
    groups = None if pattern is None else _groups_of(lake, view, pattern)
    conditions = " AND ".join(_conditions(lake, view, groups, topic, since_ms)) or "true"
    tables = {table: lake.delta_table(table) for table in needed([name])[0]}
    query = _Query(lake, view, tables, conditions, limit)
    if limit and limit <= MAX_FIRST_ROWS and groups is None and (first := _first_rows(query, since_ms)) is not None:
        return first
    parts = _parts(query, groups) if view.by_log_partition else []
    if len(parts) < 2:
        return kept(query.stream(*parts))
    collected, done, total = PartedAnswer(view.order), 0, sum(part.rows for part in parts)
    for part in parts:
        collected.add(query.stream(part, in_order=limit is not None))
        done += part.rows
        advance(done, total)
    return collected.answer().slice(0, limit)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of history for which a view is computed separately.

    | field    | description |
    |----------|-------------|
    | only     | the SQL condition on the rows of each history table |
    | groups   | the SQL condition on the groups of the answer |
    | rows     | approximate number of rows of history |
    | is_large | whether it has a group with more rows than are compared at once, which are sorted in one thread |
    """

    only: Mapping[str, str]
    groups: str
    rows: int
    is_large: bool = False


@dataclass(frozen=True, slots=True)
class _Query:
    """A query of a view over tables that are opened once, with an SQL condition and optionally a number of rows."""

    lake: Lake
    view: View
    tables: Tables
    conditions: str
    limit: int | None

    def engine(
        self, *names: str, only: Mapping[str, str] | None = None, settings: Mapping[str, str] | None = None
    ) -> Engine:
        """Return an SQL engine over the named views and tables, and those they are built on."""
        return self.lake.engine(names, {}, only, settings, self.tables)

    def stream(self, part: _Part | None = None, *, in_order: bool = True) -> pa.RecordBatchReader:
        """Return its rows, by default of all history."""
        settings = spilling() if part and part.is_large else None
        engine = self.engine(self.view.name, only=part.only if part else None, settings=settings)
        of_part = f"{self.conditions} AND {part.groups}" if part else self.conditions
        order = f"ORDER BY {self.view.order}" if in_order else ""
        limited = "" if self.limit is None else f"LIMIT {self.limit}"
        return engine.stream(f"SELECT * FROM {self.view.name} WHERE {of_part} {order} {limited}")  # noqa: S608


def _first_rows(query: _Query, since_ms: int | None) -> pa.Table | None:
    """Return the rows of a query with a limit, computed from the keys that have the first rows; None if unknown.

    Each row of such a view is of a row of `commit_outcomes`, which are sorted first: if the last row of the answer is
    among the first of these, then all rows before it are of their keys.
    """
    view, columns = query.view, ("group_id", "topic", "partition", "log_partition", "log_offset")
    if not view.outcomes_order or (since_ms is not None and view.since not in views()["commit_outcomes"].columns):
        return None
    count = _CANDIDATES * (query.limit or 1)
    effective = "true" if view.name == "commit_outcomes" else "effective_log_offset IS NOT NULL"
    sql = f"""SELECT {", ".join(columns)} FROM commit_outcomes WHERE {effective}
        AND {query.conditions} ORDER BY {view.outcomes_order} LIMIT {count}"""  # noqa: S608
    try:
        candidates = query.engine("commit_outcomes").query(sql)
    except NotEnoughMemory:  # of too many transactions: the parts of history need less
        return None
    if not candidates.num_rows:
        return None
    part = _part_of(query, _of_keys(candidates), candidates["group_id"])
    rows = query.stream(part).read_all() if part.rows <= ROWS_AT_ONCE else None
    if rows is None or candidates.num_rows < count:
        return rows
    last = rows.slice(query.limit - 1).select(columns[3:]).to_pylist() if query.limit else []
    return rows if last and last[0] in candidates.select(columns[3:]).to_pylist() else None


def _of_keys(rows: pa.Table) -> str:
    """Return a condition that is true for the keys of some rows, and for few others."""
    every = f"group_id IN ({_listed(rows['group_id'])})"
    groups = pc.unique(rows["group_id"])
    if len(groups) > _MAX_GROUPS_APART:
        return f"{every} AND topic IN ({_listed(rows['topic'])}) AND partition IN ({_listed(rows['partition'])})"
    apart = []
    for group in groups:
        of_group = rows.filter(pc.equal(rows["group_id"], group))
        topics, partitions = _listed(of_group["topic"]), _listed(of_group["partition"])
        apart.append(f"group_id = {quoted(group.as_py())} AND topic IN ({topics}) AND partition IN ({partitions})")
    return f"{every} AND (({') OR ('.join(apart)}))"


def _listed(values: pa.ChunkedArray) -> str:
    """Return the distinct values as a list in SQL."""
    distinct = pc.unique(values).to_pylist()
    return ", ".join(quoted(value) if isinstance(value, str) else str(value) for value in distinct)


def _part_of(query: _Query, condition: str, groups: pa.ChunkedArray) -> _Part:
    """Return the part of history with the rows of some groups that satisfy a condition on columns of the key."""
    history = [table for table in REDUCED_HISTORY if table in query.tables]
    named = f"group_id IN ({_listed(groups)})"
    every = " UNION ALL ".join(
        f"SELECT log_partition, {weight} AS weight FROM {table} WHERE {where}"  # noqa: S608
        for table, weight, where in (("offset_commits", 1, condition), ("group_records", 0, named))
        if table in query.tables
    )
    sql = f"SELECT log_partition, sum(weight) AS n FROM ({every}) GROUP BY log_partition"  # noqa: S608
    found = query.engine(*history).query(sql)
    within = f"log_partition IN ({_listed(found['log_partition']) or 'NULL'})"
    conditions = {"offset_commits": f"({condition} OR commit_id IS NOT NULL)", "group_records": named}
    only = {table: f"{within} AND {conditions.get(table, 'true')}" for table in history}
    return _Part(only, condition, pc.sum(found["n"]).as_py() or 0)


def _parts(query: _Query, groups: Sequence[str] | None) -> list[_Part]:
    """Divide history into parts of about ROWS_AT_ONCE rows: by log partition, and large log partitions by group.

    The history of named groups, if it is not larger, is one part.
    """
    if groups is not None:
        named = pa.chunked_array([groups], pa.string())
        part = _part_of(query, f"group_id IN ({_listed(named)})", named)
        if part.rows <= ROWS_AT_ONCE:
            return [part]
    tables = {table: query.tables[table] for table in REDUCED_HISTORY if table in query.tables}
    rows_at_once = _rows_at_once(query)
    divided = portions(tables, 0, rows_at_once)
    if len(divided) == 1 and divided[0].rows <= rows_at_once:
        return []
    parts = []
    for portion in divided:
        for of_range, rows in _group_ranges(query, portion, rows_at_once):
            is_large = rows > _MAX_EXCESS * rows_at_once
            parts.append(_Part(_only(portion, of_range, tables), of_range, rows, is_large))
    return parts


def _rows_at_once(query: _Query) -> int:
    """Return how many rows of history a part has: a view of turning points compares these only."""
    used = needed([query.view.name])[1]
    if not any(view.has_windows for view in used):
        return AGGREGATED_AT_ONCE
    if "turning_points" in {view.name for view in used}:
        return int(TURNING_AT_ONCE / _share_of_turning_points(query))
    return ROWS_AT_ONCE


def _share_of_turning_points(query: _Query) -> float:
    """Return which part of the commits is not routine, at least 1 %: a view of turning points reads only these."""
    sql = "SELECT count(*) AS every, sum(CASE WHEN routine THEN 0 ELSE 1 END) AS turning FROM offset_commits"
    (counted,) = query.engine("offset_commits").query(sql).to_pylist()
    return max(int(counted["turning"] or 0) / max(int(counted["every"]), 1), _MIN_SHARE)


def _group_ranges(query: _Query, portion: Portion, rows_at_once: int) -> list[tuple[str, int]]:
    """Return SQL conditions that divide the groups of a portion by name into ranges, and their numbers of commits.

    A range has at most about `rows_at_once` commits, but a group is never divided.
    """
    shares = -(-portion.rows // rows_at_once)
    if shares < 2:
        return [("true", portion.rows)]
    engine = query.engine("offset_commits", only={"offset_commits": portion.condition})
    counted = engine.query("SELECT group_id, count(*) AS n FROM offset_commits GROUP BY group_id ORDER BY group_id")
    ends = np.cumsum(counted["n"].to_numpy())
    numbers = (ends - 1) * shares // ends[-1:]
    starts = np.flatnonzero(np.diff(numbers)) + 1
    rows = np.diff(ends[[*(starts - 1), -1]], prepend=0).tolist() if len(ends) else [0]
    firsts = counted["group_id"].take(pa.array(starts)).to_pylist()
    bounds = [quoted(name) for name in firsts]
    conditions = [
        " AND ".join([*([f"group_id >= {low}"] if low else []), *([f"group_id < {high}"] if high else [])]) or "true"
        for low, high in pairwise([None, *bounds, None])
    ]
    return list(zip(conditions, rows, strict=True))


def _only(portion: Portion, groups: str, tables: Iterable[str]) -> dict[str, str]:
    """Return the conditions on history tables for some groups of a portion.

    A commit in parts is complete by all of its parts, whichever groups these are of; a transaction by its marker.
    """
    conditions = {"offset_commits": f"({groups} OR commit_id IS NOT NULL)", "group_records": groups}
    return {table: f"{portion.condition} AND {conditions.get(table, 'true')}" for table in tables}


def has_history(lake: Lake) -> bool:
    """Check whether a record of any group was ever read."""
    return bool(lake.query(f"SELECT * FROM ({_GROUPS}) LIMIT 1", "offset_commits", "group_records").num_rows)  # noqa: S608


def of_groups(lake: Lake, pattern: str) -> str:
    """Return the SQL condition for the groups that match the pattern; raise BadRequest if history has none."""
    return _in_groups(known_groups(lake, pattern))


def _in_groups(groups: Iterable[str]) -> str:
    return f"group_id IN ({', '.join(map(quoted, groups))})"


def _groups_of(lake: Lake, view: View, pattern: str) -> list[str]:
    _check_by(view, "group_id", "--group")
    return known_groups(lake, pattern)


def _conditions(
    lake: Lake, view: View, groups: Sequence[str] | None, topic: str | None, since_ms: int | None
) -> Iterator[str]:
    if groups is not None:
        yield _in_groups(groups)
    if topic is not None:
        _check_by(view, "topic", "--topic")
        check_committed(lake, topic=topic)
        yield f"topic = {quoted(topic)}"
    if since_ms is not None:
        yield f"{view.since} >= {since_ms}"


def _check_by(view: View, column: str, option: str) -> None:
    if column not in view.columns:
        raise BadRequest(
            f"{view.name} has no column {column}: leave {option} out; its columns: {', '.join(view.columns)}"
        )
