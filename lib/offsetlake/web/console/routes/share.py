"""The pages of share groups: all of them, and the share partitions of one with their records in flight."""

from dataclasses import replace
from glob import escape

import pyarrow as pa
import pyarrow.compute as pc
from fastapi import FastAPI, Response

from offsetlake.errors import NotInLake
from offsetlake.lake.lake import Lake
from offsetlake.lake.unread import check_share_state_read
from offsetlake.queries.selection import like
from offsetlake.queries.share import share_batches, share_groups, share_partitions
from offsetlake.util.columns import taken
from offsetlake.util.row_codes import rows_in
from offsetlake.web.console.access import Reader, Visitor
from offsetlake.web.console.answers import PageAnswers
from offsetlake.web.console.pages import page_response
from offsetlake.web.console.routes.parameters import EnteredTimes, Text
from offsetlake.web.console.state import PAGE_ROWS, PageState, command_line

_MAX_BATCHES = 200
_KEY = ("group_id", "topic_id", "partition")


def add_routes(app: FastAPI, answers: PageAnswers, lake: str) -> None:
    """Add the routes to an application; commands on the pages name `lake`."""

    @app.get("/share")
    def groups(visitor: Reader, times: EnteredTimes, q: Text = "", page: int = 1) -> Response:
        state = replace(times, q=q, page=page)
        rows = share_groups(like(_partitions(answers, state, visitor), answers.pattern(state, visitor)))
        first = (page - 1) * PAGE_ROWS
        return page_response(
            "share.html", state, _command(state, lake, state.pattern), rows=rows.slice(first, PAGE_ROWS).to_pylist(),
            total=rows.num_rows, more=rows.num_rows > page * PAGE_ROWS,
        )  # fmt: skip

    @app.get("/share-group")
    def group(visitor: Reader, times: EnteredTimes, group: Text, page: int = 1) -> Response:
        state = replace(times, group=group, page=page)
        rows = _partitions(answers, state, visitor)
        rows = rows.filter(pc.equal(rows["group_id"], group))
        if not rows.num_rows:
            check_share_state_read(answers.open(), group if visitor.sees(group) else None)
            raise NotInLake(f"There is no share group {group!r}{' at this time' if state.at else ''}.")
        described, members = answers.members(state, visitor)
        shown = rows.slice((page - 1) * PAGE_ROWS, PAGE_ROWS)
        batches = share_batches(shown)
        return page_response(
            "share_group.html", state, _command(state, lake, escape(group)),
            rows=shown.drop_columns(["state_batches"]).to_pylist(), total=rows.num_rows,
            more=rows.num_rows > page * PAGE_ROWS, described=described, members=members[:PAGE_ROWS],
            batches=batches.slice(0, _MAX_BATCHES).to_pylist(), all_batches=batches.num_rows,
            batches_command=command_line("share", group=escape(group), lake=lake) + " --batches",
        )  # fmt: skip


def _partitions(answers: PageAnswers, state: PageState, visitor: Visitor) -> pa.Table:
    """Return the share partitions that the visitor sees.

    With two instants, those of the later one, with `first_offset`: the start offset at the first one.
    """

    def query(lake: Lake) -> pa.Table:
        first, last = state.span_ms or (None, state.at_ms)
        rows = share_partitions(lake, instant_ms=last)
        if first is None:
            return rows
        before = share_partitions(lake, instant_ms=first)
        return rows.append_column("first_offset", taken(before["start_offset"], rows_in(rows, before, _KEY)))

    return visitor.visible(answers.rows(query))


def _command(state: PageState, lake: str, pattern: str | None) -> str:
    """Return the command with the same answer; one for each of two instants."""
    instants = [state.at, state.second] if state.second else [state.at]
    return " && ".join(command_line("share", group=pattern, as_of=at or None, lake=lake) for at in instants)
