"""The pages of groups, of a group, and of a partition."""

from fastapi import FastAPI, Response

from offsetlake.console.access import Reader, Visitor
from offsetlake.console.answers import Answers
from offsetlake.console.drawing import Drawing, draw
from offsetlake.console.pages import page_response
from offsetlake.console.routes.parameters import Instant, SecondInstant, Text
from offsetlake.console.state import PAGE_ROWS, PageState, command_line
from offsetlake.queries.questions import STATES


def add_routes(app: FastAPI, answers: Answers, lake: str) -> None:
    """Add the routes to an application; commands on the pages name `lake`."""

    def _drawing(shown: PageState, visitor: Visitor) -> Drawing | None:
        timeline = answers.timeline() if visitor.access.sees_all() else None  # it counts the commits of all groups
        return None if timeline is None else draw(timeline, [shown.at_ms, shown.second_ms])

    @app.get("/")
    def groups(
        visitor: Reader,
        at: Instant = "",
        second: SecondInstant = "",
        q: Text = "",
        state: Text = "",
        sort: Text = "group_id",
        page: int = 1,
    ) -> Response:
        shown = PageState(at=at, second=second, q=q, state=state, sort=sort, page=page)
        rows, total = answers.groups(shown, visitor)
        if second:
            command = command_line("diff", **shown.span_options, lake=lake)
        else:
            command = command_line("groups", group=shown.pattern, state=state or None, as_of=at or None, lake=lake)
        more = total > page * PAGE_ROWS
        return page_response(
            "groups.html", shown, command, rows=rows.to_pylist(), total=total, more=more, states=STATES,
            timeline=_drawing(shown, visitor),
        )  # fmt: skip

    @app.get("/group")
    def group(visitor: Reader, group: Text, at: Instant = "", second: SecondInstant = "", page: int = 1) -> Response:
        shown = PageState(at=at, second=second, group=group, page=page)
        rows, total = answers.group(shown, visitor)
        if second:
            command = command_line("diff", **shown.span_options, group=group, lake=lake)
        else:
            command = command_line("offsets", group=group, as_of=at or None, lake=lake)
        more = total > page * PAGE_ROWS
        return page_response(
            "group.html",
            shown,
            command,
            rows=rows.to_pylist(),
            total=total,
            more=more,
            timeline=_drawing(shown, visitor),
        )

    @app.get("/partition")
    def partition(
        visitor: Reader,
        group: Text,
        topic: Text,
        partition: int,
        at: Instant = "",
        second: SecondInstant = "",
        page: int = 1,
    ) -> Response:
        shown = PageState(at=at, second=second, group=group, topic=topic, partition=partition, page=page)
        rows, more = answers.commits(shown, visitor)
        command = command_line("history", group=group, topic=topic, partition=partition, lake=lake)
        return page_response("partition.html", shown, command, rows=rows.to_pylist(), more=more)
