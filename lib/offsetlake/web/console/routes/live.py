"""The content of the report, live: what needs attention, the results of checks, and the sections of the report."""

from urllib.parse import urlencode

from fastapi import FastAPI, Response
from starlette.exceptions import HTTPException

from offsetlake.rules.policy import RetentionPolicy
from offsetlake.web.console.access import ReaderOfAll
from offsetlake.web.console.answers import PageAnswers
from offsetlake.web.console.live.content import LiveAnswer, LiveContent
from offsetlake.web.console.pages import page_response
from offsetlake.web.console.state import PageState, at_base, command_line

_PAGES = {
    "groups with a lag alarm": "/lag",
    "unused groups": "/review?show=orphans",
    "hanging transactions": "/review?show=hanging",
    "records of share groups delivered again": "/share",
}
_PICTURE_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
"""A picture contains its styles, and nothing else can be loaded or run by it."""


def add_routes(app: FastAPI, answers: PageAnswers, lake: str, policy: RetentionPolicy) -> None:
    """Add the routes to an application; commands on the pages name `lake`, and the report is about `policy`."""
    live, checked = (LiveContent(answers, part, lake, policy) for part in ("report", "checks"))

    def page(template: str, command: str, content: LiveContent) -> Response:
        shown, progress = content.get()
        again_after, links = None if progress is None else 2, _links(shown)
        return page_response(template, PageState(), command, again_after, live=shown, progress=progress, links=links)

    @app.get("/attention")
    def attention(_visitor: ReaderOfAll) -> Response:
        return page("attention.html", command_line("report", lake=lake), live)

    @app.get("/report")
    def report(_visitor: ReaderOfAll) -> Response:
        return page("report.html", command_line("report", lake=lake), live)

    @app.get("/checks")
    def checks(_visitor: ReaderOfAll) -> Response:
        return page("checks.html", command_line("check", lake=lake), checked)

    @app.get("/report/{number}.svg")
    def picture(_visitor: ReaderOfAll, number: int) -> Response:
        content, _ = live.get()
        pictures = [section["picture"] for section in content.sections] if content else []
        if not 0 <= number < len(pictures) or pictures[number] is None:
            raise HTTPException(404)
        return Response(pictures[number], media_type="image/svg+xml", headers=_PICTURE_HEADERS)


def _links(content: LiveAnswer | None) -> list[str]:
    """Return the address of a page about each problem; empty for none."""
    if content is None or not content.sections:
        return []
    section = content.sections[0]
    return [
        at_base(_PAGES[row["problem"]]) if row["problem"] in _PAGES
        else at_base(f"/group?{urlencode({'group': group})}") if group is not None else ""
        for row, group in zip(section["rows"], section["groups"], strict=True)
    ]  # fmt: skip
