"""Queries over the views: rows of a view, optionally of some groups, those that need attention first."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from offsetlake.errors import BadRequest
from offsetlake.lake.definitions import REDUCED_HISTORY
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.answers import Answer, PartedAnswer, kept
from offsetlake.lake.sql.portions import ROWS_AT_ONCE, Portion, portions
from offsetlake.lake.sql.views import View, needed, views
from offsetlake.queries.questions import check_committed, known_groups, quoted

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
    memory; `advance` is called after each part with the number of records read and the number of all records.

    Raises BadRequest for an unknown view, for a pattern or topic if the view has no such column, for a lake without
    history, and for groups or a topic that history does not have; LakeUnusable if an older program made the lake.
    """
    if name not in views():
        raise BadRequest(f"unknown view {name!r}; views are {', '.join(sorted(views()))}")
    view = views()[name]
    if not has_history(lake):
        raise BadRequest(f"the lake {lake.location} contains no history yet: `offsetlake run` reads the log")
    conditions = " AND ".join(_conditions(lake, view, pattern, topic, since_ms)) or "true"
    limited = "" if limit is None else f"LIMIT {limit}"
    select = f"SELECT * FROM {name} WHERE {conditions}"  # noqa: S608
    versions = lake.versions(*needed([name])[0])
    parts = _parts(lake, versions) if view.by_log_partition else []
    if len(parts) < 2:
        return kept(lake.engine([name], versions).stream(f"{select} ORDER BY {view.order} {limited}"))
    collected, done, total = PartedAnswer(view.order), 0, sum(part.rows for part in parts)
    for part in parts:
        engine = lake.engine([name], versions, part.only)
        of_part = f"{select} AND {part.groups}"
        collected.add(engine.stream(f"{of_part} ORDER BY {view.order} {limited}" if limited else of_part))
        done += part.rows
        advance(done, total)
    return collected.answer().slice(0, limit)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of history for which a view is computed separately.

    | field  | description |
    |--------|-------------|
    | only   | the SQL condition on the rows of each history table |
    | groups | the SQL condition on the groups of the answer |
    | rows   | approximate number of rows of history |
    """

    only: Mapping[str, str]
    groups: str
    rows: int


def _parts(lake: Lake, versions: Mapping[str, int]) -> list[_Part]:
    """Divide history into parts of about ROWS_AT_ONCE rows: by log partition, and large log partitions by group."""
    tables = {table: lake.delta_table(table, versions[table]) for table in REDUCED_HISTORY if table in versions}
    parts = []
    for portion in portions(tables, 0, ROWS_AT_ONCE):
        ranges = _group_ranges(lake, versions, portion)
        parts += [_Part(_only(portion, groups, tables), groups, portion.rows // len(ranges)) for groups in ranges]
    return parts


def _group_ranges(lake: Lake, versions: Mapping[str, int], portion: Portion) -> list[str]:
    """Return SQL conditions that divide the groups of a portion by name into ranges of about as many commits each.

    A range has at most about ROWS_AT_ONCE commits, but a group is never divided.
    """
    shares = -(-portion.rows // ROWS_AT_ONCE)
    if shares < 2:
        return ["true"]
    engine = lake.engine([], {"offset_commits": versions["offset_commits"]}, {"offset_commits": portion.condition})
    counted = engine.query("SELECT group_id, count(*) AS n FROM offset_commits GROUP BY group_id ORDER BY group_id")
    ends = np.cumsum(counted["n"].to_numpy())
    numbers = (ends - 1) * shares // ends[-1:]
    firsts = counted["group_id"].take(pa.array(np.flatnonzero(np.diff(numbers)) + 1)).to_pylist()
    bounds = [quoted(name) for name in firsts]
    return [
        " AND ".join([*([f"group_id >= {low}"] if low else []), *([f"group_id < {high}"] if high else [])]) or "true"
        for low, high in pairwise([None, *bounds, None])
    ]


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
    return f"group_id IN ({', '.join(map(quoted, known_groups(lake, pattern)))})"


def _conditions(lake: Lake, view: View, pattern: str | None, topic: str | None, since_ms: int | None) -> Iterator[str]:
    if pattern is not None:
        _check_by(view, "group_id", "--group")
        yield of_groups(lake, pattern)
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
