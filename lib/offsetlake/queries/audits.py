"""The views as a person asks them: the rows of one, of some groups, first what is worth looking at."""

from collections.abc import Callable, Iterator, Mapping

from offsetlake.errors import BadRequest
from offsetlake.lake.answers import Answer, PartedAnswer, kept
from offsetlake.lake.lake import Lake
from offsetlake.lake.portions import ROWS_AT_ONCE, Portion, portions
from offsetlake.lake.views import View, needed, views
from offsetlake.queries.questions import check_committed, known_groups, quoted

_HISTORY = ("offset_commits", "transaction_markers", "group_records")
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
    """Rows of a view in its order; of the groups like `pattern`, of one topic, since an instant, where named.

    A view of history is asked for some log partitions at a time, which bounds memory; `advance` is called after each
    with how many records were looked at, and of how many.

    Raises BadRequest for a view there is not, one that is not by group or topic where those are named, a lake without
    history, and groups or a topic that history does not have; LakeUnusable where an older program made the lake.
    """
    if name not in views():
        raise BadRequest(f"no view {name!r}; views are {', '.join(sorted(views()))}")
    view = views()[name]
    if not has_history(lake):
        raise BadRequest(f"the lake {lake.path} holds no history yet: `offsetlake run` reads the log")
    conditions = " AND ".join(_conditions(lake, view, pattern, topic, since_ms)) or "true"
    limited = "" if limit is None else f"LIMIT {limit}"
    select = f"SELECT * FROM {name} WHERE {conditions}"  # noqa: S608
    at = lake.versions(*needed([name])[0])
    parts = _portions(lake, at) if view.by_log_partition else []
    if len(parts) < 2:
        return kept(lake.engine([name], at).stream(f"{select} ORDER BY {view.order} {limited}"))
    collected, done, total = PartedAnswer(view.order), 0, sum(part.rows for part in parts)
    for part in parts:
        only = {table: part.condition for table in at if table in _HISTORY}
        engine = lake.engine([name], at, only)
        collected.add(engine.stream(f"{select} ORDER BY {view.order} {limited}" if limited else select))
        done += part.rows
        advance(done, total)
    return collected.answer().slice(0, limit)


def _portions(lake: Lake, at: Mapping[str, int]) -> list[Portion]:
    return portions({table: lake.delta_table(table, at[table]) for table in _HISTORY if table in at}, 0, ROWS_AT_ONCE)


def has_history(lake: Lake) -> bool:
    """Tell whether a record of any group was ever read."""
    return bool(lake.query(f"SELECT * FROM ({_GROUPS}) LIMIT 1", "offset_commits", "group_records").num_rows)  # noqa: S608


def of_groups(lake: Lake, pattern: str) -> str:
    """Give the SQL condition that holds for the groups like the pattern; BadRequest where history has none."""
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
