"""Search while typing, and the pages of what it finds besides groups: topics, principals and client ids."""

from dataclasses import replace

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from offsetlake.lake.sql.engine import quoted
from offsetlake.util.escaping import visible
from offsetlake.web.console.access import Reader
from offsetlake.web.console.answers import PageAnswers
from offsetlake.web.console.pages import page_response
from offsetlake.web.console.routes.parameters import EnteredTimes, Text, Times
from offsetlake.web.console.state import PageState, command_line

_TITLES = {"group": "Group", "topic": "Topic", "principal": "Principal", "client": "Client id"}


def add_routes(app: FastAPI, answers: PageAnswers, lake: str) -> None:
    """Add the routes to an application; commands on the pages name `lake`."""

    @app.get("/search")
    def search(visitor: Reader, times: Times, q: Text = "") -> Response:
        found = answers.search(q, visitor)
        return JSONResponse(
            [{"kind": _TITLES[kind], "name": visible(name), "url": _address(times, kind, name)} for kind, name in found]
        )

    @app.get("/topic")
    def topic(visitor: Reader, times: EnteredTimes, topic: Text) -> Response:
        shown = replace(times, topic=topic)
        rows = answers.topic(shown, visitor).to_pylist()
        if shown.second:
            command = command_line("diff", **shown.span_options, topic=topic, lake=lake)
        else:
            command = command_line("offsets", topic=topic, as_of=shown.at or None, lake=lake)
        return page_response("topic.html", shown, command, rows=rows)

    @app.get("/client")
    def client(visitor: Reader, times: EnteredTimes, principal: Text = "", client: Text = "") -> Response:
        events, members = answers.client(times, principal, client, visitor)
        since_ms, until_ms = times.period_ms
        if principal and until_ms is None:
            command = command_line("audit-events", principal=principal, since=since_ms, lake=lake)
        else:
            name, value = ("principal", principal) if principal else ("client_id", client)
            ends = ((">=", since_ms), ("<=", until_ms))
            period = "".join(f" AND log_timestamp {operator} {end}" for operator, end in ends if end is not None)
            sql = f"SELECT * FROM audit_events WHERE {name} = {quoted(value)}{period} ORDER BY log_timestamp DESC"  # noqa: S608
            command = command_line("sql", sql, lake=lake)
        return page_response(
            "client.html", times, command, name=principal or client, kind="Principal" if principal else "Client id",
            fields={"principal": principal} if principal else {"client": client},
            events=events.to_pylist(), members=members.to_pylist(),
        )  # fmt: skip


def _address(times: PageState, kind: str, name: str) -> str:
    """Return the address of the page about a name."""
    if kind == "group":
        return times.elsewhere("/group", group=name)
    if kind == "topic":
        return times.elsewhere("/topic", topic=name)
    return times.elsewhere("/client", extra=((kind, name),))
