"""The pages about a whole lake: lag, groups that commit too often, runs of jobs, and quarantined records."""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from fastapi import FastAPI, Response

from offsetlake.lake.current_run import JOBS, unfinished_plan
from offsetlake.lake.plans import Plan
from offsetlake.lake.runs import log_ends_source
from offsetlake.lake.sql.views import views
from offsetlake.queries.cycles import as_texts, list_cycles, with_requesters
from offsetlake.queries.selection import like
from offsetlake.web.console.access import Reader, ReaderOfAll
from offsetlake.web.console.answers import PageAnswers
from offsetlake.web.console.background import COMMITTERS, MAX_COMMITTERS, committers
from offsetlake.web.console.pages import page_response
from offsetlake.web.console.routes.parameters import RunNumber, Text
from offsetlake.web.console.state import PAGE_ROWS, PageState, command_line


class PageColumn(NamedTuple):
    """A column of a page: its name in the rows, its heading, and how it is shown.

    The kinds are name (which may be broken anywhere), word (never), words (a wide column), number, time and group.
    """

    name: str
    heading: str
    kind: str = "name"


_LAG = (
    PageColumn("group_id", "Group", "group"), PageColumn("status", "Status", "word"),
    PageColumn("lag", "Lag in records", "number"),
    PageColumn("lag_at_most", "At most", "number"), PageColumn("behind", "Lag in time", "word"),
    PageColumn("partitions", "Partitions", "number"), PageColumn("not_ok", "With an alarm", "number"),
    PageColumn("lag_unknown", "Lag unknown", "number"), PageColumn("no_commit", "Without a commit", "number"),
    PageColumn("deleted_before_read", "Records deleted before read", "number"), PageColumn("topic", "Worst topic"),
    PageColumn("partition", "Partition", "number"), PageColumn("asked_timestamp", "As of (UTC)", "time"),
)  # fmt: skip
_CYCLES = (
    PageColumn("cycle", "First run", "word"), PageColumn("outcome", "Outcome", "word"),
    PageColumn("started_at", "Started (UTC)", "time"), PageColumn("duration", "Duration", "word"),
    PageColumn("jobs", "Jobs", "word"), PageColumn("requesters", "Requested by"),
    PageColumn("records_read", "Records read", "number"), PageColumn("rows_written", "Rows written", "number"),
    PageColumn("failed", "What failed", "words"),
)  # fmt: skip
_QUARANTINE = (
    PageColumn("reason", "Reason", "words"), PageColumn("records", "Records", "number"),
    PageColumn("log_topic", "Topic"),
    PageColumn("first_timestamp", "First (UTC)", "time"), PageColumn("newest_timestamp", "Newest (UTC)", "time"),
)  # fmt: skip


def add_routes(app: FastAPI, answers: PageAnswers, lake: str) -> None:
    """Add the routes to an application; commands on the pages name `lake`."""

    @app.get("/lag")
    def lag(visitor: Reader, q: Text = "", page: int = 1) -> Response:
        state = PageState(q=q, page=page)
        rows = answers.lags()
        rows = None if rows is None else like(visitor.visible(rows), answers.pattern(state, visitor))
        command = command_line("lag", group=state.pattern, lake=lake)
        option, value = log_ends_source(answers.open())
        empty = (
            f"No log end offsets are recorded. {_RECORDING[option]} records them: `offsetlake run {option} {value}`."
        )
        return _page("Lag", _LAG_TEXT, state, "/lag", _LAG, rows, command, empty)

    @app.get("/committers")
    def most_commits(visitor: Reader, q: Text = "", page: int = 1) -> Response:
        state = PageState(q=q, page=page)
        rows = answers.later("committers", ("offset_commits", "runs"), committers)
        rows = None if rows is None else like(visitor.visible(rows), answers.pattern(state, visitor))
        command = command_line("audit", COMMITTERS, group=state.pattern, lake=lake, limit=MAX_COMMITTERS)
        view = views()[COMMITTERS]
        names = [] if rows is None else rows.column_names
        columns = [_column(name, rows) for name in names if name not in view.least_important]
        return _page("Busiest", view.answers, state, "/committers", columns, rows, command, "No group has committed.")

    @app.get("/runs")
    def runs(_visitor: ReaderOfAll, run: RunNumber = 0, page: int = 1) -> Response:
        state, rows = PageState(run=run, page=page), _cycles(answers)
        if run:
            rows = rows.filter((pc.field("cycle") <= run) & (pc.field("last_run") >= run))
        command = command_line("runs", "--cycles", lake=lake)
        return _page("Runs", _CYCLES_TEXT, state, "/runs", _CYCLES, rows, command, "No job has run yet.")

    @app.get("/quarantine")
    def quarantine(_visitor: ReaderOfAll, page: int = 1) -> Response:
        rows = answers.open().query(_QUARANTINED, "quarantine")
        state, command = PageState(page=page), command_line("sql", " ".join(_QUARANTINED.split()), lake=lake)
        empty = "Every record that was read could be decoded."
        return _page("Quarantine", _QUARANTINE_TEXT, state, "/quarantine", _QUARANTINE, rows, command, empty)


_LAG_TEXT = (
    "The lag of groups, those with alarms first. The status follows the rules of Burrow. It is NO_COMMIT if members "
    "read partitions without a committed offset, and DELETED_BEFORE_READ or BEYOND_END if a committed offset is not in "
    "the log. A lag that depends on the reset policy of the consumers, which no log contains, has an upper bound."
)
_RECORDING = {
    "--bootstrap": "Only a cycle over a live cluster",
    "--log": "A cycle over the log of this node, while `offsetlake serve` runs,",
}
_CYCLES_TEXT = "The cycles of jobs, newest first."
_QUARANTINE_TEXT = "Records that could not be decoded. They are kept with their bytes, and reading went on after them."
_QUARANTINED = """
SELECT reason, log_topic, count(*) AS records, min(log_timestamp) AS first_timestamp,
  max(log_timestamp) AS newest_timestamp
FROM quarantine GROUP BY reason, log_topic ORDER BY records DESC, reason, log_topic"""


def _cycles(answers: PageAnswers) -> pa.Table:
    """Return the cycles, which depend on the table `runs` and on the plans of unfinished runs."""
    lake = answers.open()
    unfinished = (unfinished_plan(lake, job, Plan) for job in JOBS)
    key = ("cycles", *unfinished, *lake.versions("runs").values())
    cycles: pa.Table = answers.cache.get(key, lambda: as_texts(with_requesters(lake, list_cycles(lake))))
    return cycles


def _page(
    title: str,
    text: str,
    state: PageState,
    path: str,
    columns: Sequence[PageColumn],
    rows: pa.Table | None,
    command: str,
    empty: str,
) -> Response:
    """Return the page with one page of the rows; if they are None, one that loads itself again."""
    first, total = (state.page - 1) * PAGE_ROWS, 0 if rows is None else rows.num_rows
    return page_response(
        "rows.html", state, command, title=title, text=text, path=path, columns=columns, total=total, empty=empty,
        rows=None if rows is None else rows.slice(first, PAGE_ROWS).to_pylist(), more=total > state.page * PAGE_ROWS,
        again_after=1 if rows is None else None,
    )  # fmt: skip


def _column(name: str, rows: pa.Table) -> PageColumn:
    """Return how a column of a view is shown."""
    kind = "time" if name.endswith("_timestamp") else "group" if name == "group_id" else "name"
    is_number = pa.types.is_integer(rows[name].type) or pa.types.is_floating(rows[name].type)
    words = name.removesuffix("_timestamp").removesuffix("_id").replace("_", " ")
    return PageColumn(name, words.capitalize(), "number" if is_number and kind == "name" else kind)
