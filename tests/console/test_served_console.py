"""The console at `/console` of `offsetlake serve`: a process of its own behind the HTTP server."""

import asyncio
import http.client
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from console.test_console import ROUTES
from offsetlake.lake.lake import Lake
from offsetlake.queries.questions import offsets
from offsetlake.serve.settings import ConsoleSettings, Settings
from offsetlake.web.http import console_process
from offsetlake.web.http.console_process import ConsoleProcess, ConsoleUnavailable
from support.console.browser import browser, needs_browser
from support.console.changes import form_token, result
from support.console.served import Answer, Page, get, linked, post, request
from support.console.served_by_serve import await_end, process_of_console, serving_console, start
from support.console.visitors import acl_file, leave_during, tokens_of
from support.queries.lakes import small_lake
from support.serve.serving import Serving

pytestmark = pytest.mark.slow

ENTRIES = (("User:carol", "*", ["read", "admin"]), ("User:dave", "search", ["read"]))
ENDLESS = (
    "SELECT count(*) FROM offset_commits a, offset_commits b, offset_commits c, offset_commits d, offset_commits e"
)


@pytest.fixture(scope="module")
def open_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a serving process without credentials."""
    with serving_console(tmp_path_factory.mktemp("open")) as (_, port):
        yield port


class Secured:
    """A serving process that requires tokens, and allows changes."""

    def __init__(self, serving: Serving, port: int, tokens: dict[str, str]) -> None:
        self.serving, self.port, self.tokens = serving, port, tokens
        self.cookies = {name: self.sign_in(name).headers["set-cookie"].split(";")[0] for name in tokens}

    def sign_in(self, name: str, **headers: str) -> Answer:
        return post(self.port, "/console/sign-in", {"token": self.tokens[name]}, **headers)

    def get(self, path: str, name: str) -> Answer:
        while "retry-after" in (answer := get(self.port, f"/console{path}", Cookie=self.cookies[name])).headers:
            assert answer.status == 200  # its rows are being computed
        return answer

    def post(self, path: str, name: str, fields: dict[str, object], **headers: str) -> Answer:
        return post(self.port, f"/console{path}", fields, cookie=self.cookies[name], **headers)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    tokens = tokens_of(folder, "carol", "dave", "nobody")
    files = {"credentials": str(folder / "credentials.json"), "acl": acl_file(folder, *ENTRIES)}
    with serving_console(folder, allows_changes=True, **files) as (serving, port):
        yield Secured(serving, port, tokens)


@pytest.mark.long
def test_every_link_stays_below_the_path_of_the_console(open_console: int) -> None:
    assert get(open_console, "/console").headers["location"] == "/console/"
    paths = {path.partition("?")[0] for path in linked(open_console, "/console/", lambda _: "/console/")}
    assert {"/console/group", "/console/partition", "/console/lag", "/console/static/console.js"} <= paths
    assert "Clusters" not in get(open_console, "/console/").text


def test_the_api_is_not_reached_through_the_console_and_others_have_no_console(open_console: int) -> None:
    outside = (
        "/console/../v1/groups", "/console/%2e%2e/v1/groups", "/console/..%2fv1/groups", "/console//v1/groups",
        "/console/static/../../v1/groups", "/console/static/..%2f..%2fapp.py", "/console/v1/groups", "/consolex/",
        "/%63onsole/../livez", "/console/console/",
    )  # fmt: skip
    for path in outside:
        assert (get(open_console, path).status, path) == (404, path)
    assert get(open_console, "/console/?q=%zz&at=%00").status == 400
    counted = 'offsetlake_http_request_duration_seconds_count{method="GET",route="/console",status="400"}'
    assert counted in get(open_console, "/metrics").text
    for host in ("evil.example", "localhost.evil.example", ""):
        assert get(open_console, "/console/", host).status == 421


@pytest.mark.long
@pytest.mark.parametrize("kind", ["chunked", "whole"])
def test_bodies_are_forwarded_up_to_their_limit(secured: Secured, kind: str) -> None:
    own = {"Origin": "http://localhost", "Content-Type": "application/x-www-form-urlencoded"}

    def answer(size: int, **headers: str) -> int:
        body = "token=" + "x" * size
        connection = http.client.HTTPConnection("127.0.0.1", secured.port, timeout=300)
        data = iter([part.encode() for part in (body[:9], body[9:])]) if kind == "chunked" else body.encode()
        try:
            connection.request("POST", "/console/sign-in", data, {"Host": "localhost", **own, **headers})  # type: ignore[arg-type]
            return connection.getresponse().status
        finally:
            connection.close()

    assert answer(1 << 19) == 403
    assert answer((1 << 20) + 1) == 413
    for _ in range(3):  # refused before the body is read
        assert answer(1 << 19, Origin="https://evil.example") == 403
        assert answer(1 << 19, **{"Content-Type": "text/plain"}) == 415


def test_headers_about_the_connection_and_the_client_are_not_forwarded(secured: Secured) -> None:
    cookie = {"Cookie": secured.cookies["carol"]}
    assert request(secured.port, "GET", "/console/", "localhost", cookie).status == 200
    assert request(secured.port, "GET", "/console/", "localhost", {**cookie, "Connection": "cookie"}).status == 303
    first = len(secured.serving.said)
    forged = {"x_forwarded_for": "192.0.2.7", "forwarded": "for=192.0.2.7", "x_forwarded_proto": "https"}
    answer = post(secured.port, "/console/sign-in", {"token": "wrong"}, **forged)
    assert (answer.status, "connection" in answer.headers) == (403, False)
    secured.serving.wait_for_line("Sign-in from 127.0.0.1 failed", first)
    assert len([value for name, value in answer.headers.items() if name == "date"]) == 1


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_requires_a_session_and_shows_no_group_without_permission(secured: Secured, route: str) -> None:
    path = ROUTES[route].replace("g001", "billing").replace("topic=t", "topic=orders").replace("q=g00", "q=")
    answer = get(secured.port, f"/console{path}")
    if route in {"/sign-in", "/static/{name}"}:
        assert answer.status == 200
    else:
        assert (answer.status, answer.headers["location"][:25]) == (303, "/console/sign-in?to=%2Fco")
        assert get(secured.port, f"/console{path}", Sec_Fetch_Mode="cors").status == 401
        token = f"Bearer {secured.tokens['carol']}"
        assert get(secured.port, f"/console{path}", Authorization=token).status == 303
    shown = secured.get(path, "nobody")
    assert shown.status in {200, 303, 400, 403, 404}
    assert not {"old-billing", "nightly-report", "orders-v1", "backfill"} & {*re.findall(r"[\w-]+", shown.text)}


def test_people_sign_in_below_the_path_and_see_their_groups(secured: Secured) -> None:
    cookie = secured.sign_in("dave").headers["set-cookie"]
    assert cookie.startswith("offsetlake-console=")
    assert {"HttpOnly", "SameSite=strict", "Path=/console"} <= {part.strip() for part in cookie.split(";")}
    for to, expected in (("/console/lag?q=x", "/console/lag?q=x"), ("/v1/groups", "/console/"), ("", "/console/")):
        answer = post(secured.port, "/console/sign-in", {"token": secured.tokens["dave"], "to": to})
        assert answer.headers["location"] == expected
    assert [row[0] for row in Page(secured.get("/", "dave").text).rows] == ["search"]
    assert "billing" in secured.get("/", "carol").text
    out = post(secured.port, "/console/sign-out", {}, cookie=cookie.split(";")[0])
    assert (out.status, out.headers["location"]) == (303, "/console/sign-in")
    assert "Path=/console" in out.headers["set-cookie"]


def test_offsets_are_changed_through_the_serving_process(secured: Secured) -> None:
    fields: dict[str, object] = {"kind": "restore", "group": "billing", "at": "2026-01-31T14:00:05"}
    assert secured.post("/change", "carol", fields).status == 403
    assert secured.post("/change", "carol", {**fields, "form_token": "forged"}).status == 403
    fields["form_token"] = form_token(secured.port, "/console", Cookie=secured.cookies["carol"])
    assert secured.post("/change", "dave", fields).status == 403
    assert secured.post("/change", "carol", fields, origin="http://evil.example").status == 403
    address = secured.post("/change", "carol", fields).headers["location"]
    assert address.startswith("/console/change/")
    cookie = {"Cookie": secured.cookies["carol"]}
    plan = Page(result(secured.port, address, **cookie).text)
    assert ["billing", "orders:0", "1,120", "1,040", "-80", "planned", ""] in plan.rows
    own = {"form_token": fields["form_token"]}
    assert secured.post(f"{address.removeprefix('/console')}/execute", "carol", own).headers["location"] == address
    assert "The change was made" in result(secured.port, address, **cookie).text
    query = urlencode({"group": "billing", "topic": "orders"})
    headers = {"Authorization": f"Bearer {secured.tokens['carol']}"}
    assert '"partition":0,"committed_offset":1040' in get(secured.port, f"/v1/offsets?{query}", **headers).text


def test_a_query_ends_when_the_browser_leaves(open_console: int) -> None:
    leave_during(open_console, f"/console/sql?{urlencode({'statement': ENDLESS})}")
    shown = Page(get(open_console, f"/console/sql?{urlencode({'statement': 'SELECT 1 AS one'})}").text)
    assert shown.rows == [["1"]]  # only one query runs at a time


@pytest.mark.long
@needs_browser
def test_no_request_of_a_browser_leaves_the_path(open_console: int, tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{open_console}/console"
    partition = urlencode({"group": "billing", "topic": "orders", "partition": 0})
    pages = ("/", "/group?group=billing", f"/partition?{partition}", "/lag", "/committers", "/runs", "/quarantine",
             "/review", "/what-if", "/sql?statement=SELECT+1", "/change?group=billing", "/none")  # fmt: skip
    with browser(tmp_path / "profile") as window:
        window.requests()
        for page in pages:
            window.open(address + page)
        window.open(address)
        window.run("document.getElementById('search').focus()")
        window.press(*"bill")
        window.await_true("return document.querySelectorAll('#found [role=option]').length > 0")
        window.press("\ue015", "\ue007")
        window.await_true("return document.querySelector('h1')?.textContent === 'Group billing'")
        window.run("document.querySelector('[aria-label=\"Pages of the console\"] a').click()")
        window.await_true("return location.pathname === '/console/'")
        requested = window.requests()
        assert [url for url in requested if url.startswith("http") and not url.startswith(f"{address}/")] == [address]
        assert {f"{address}/static/console.css", f"{address}/static/charts.js"} <= {*requested}
        assert [message for message in window.messages() if "Content Security Policy" in message] == []


@pytest.mark.long
def test_a_killed_console_is_started_again_and_ends_with_the_serving_process(tmp_path: Path) -> None:
    with serving_console(tmp_path) as (serving, port):
        first = process_of_console(serving)
        os.kill(first, signal.SIGKILL)
        serving.wait_for_line("The process of the console ended with code -9")
        assert get(port, "/livez").status == 200
        start(serving, port)
        assert get(port, "/console/").status == 200
        second = process_of_console(serving)
        assert second != first
        serving.kill()
        await_end(second)


@pytest.mark.long
def test_a_change_is_completed_when_the_server_stops(tmp_path: Path) -> None:
    with serving_console(tmp_path, allows_changes=True) as (serving, port):
        fields = {"kind": "restore", "group": "billing", "at": "2026-01-31T14:00:05"}
        fields["form_token"] = form_token(port, "/console")
        address = post(port, "/console/change", fields).headers["location"]
        result(port, address)
        assert post(port, f"{address}/execute", fields).status == 303
        assert serving.stop() == 0
    rows = offsets(Lake.open(tmp_path / "lake"), "billing", "orders").to_pylist()
    assert [row["committed_offset"] for row in rows] == [1040, 900]


def console(lake: Path, configured: Path) -> ConsoleProcess:
    """Return the console of a lake, of a server whose command line names a lake."""
    options = ConsoleSettings(options={"lake": str(configured)})
    return ConsoleProcess(Settings(str(lake), str(lake.with_name("log")), "127.0.0.1", 0, console=options))


async def reason(process: ConsoleProcess) -> str:
    """Return why there is no console, as soon as it is known."""
    while True:
        try:
            async with process.connection():
                return ""
        except ConsoleUnavailable as error:
            if str(error) != "The console is starting.":
                return str(error)


@pytest.mark.long
def test_the_reason_is_shown_if_there_is_no_console(tmp_path: Path) -> None:
    async def reasons() -> list[str]:
        found = []
        for lake in (tmp_path / "none", tmp_path / "other"):
            process = console(lake, tmp_path / "none")
            found += [await reason(process), await reason(process)]  # the second request starts no second process
            await process.close()
        return found

    none, same, other, again = asyncio.run(reasons())
    assert none == same
    assert "none" in none
    assert other == again
    assert other.endswith(f"none now, but {tmp_path / 'other'} is served. Restart the server.")


@pytest.mark.long
def test_an_unused_console_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_lake(tmp_path / "lake", groups=[{"group_id": "g"}])
    monkeypatch.setattr(console_process, "MAX_IDLE_SECONDS", 0.0)

    async def used_once() -> None:
        process = console(tmp_path / "lake", tmp_path / "lake")
        monkeypatch.setattr(console_process, "MAX_WAIT_SECONDS", 300.0)
        async with process.connection():
            first = process._current
        assert first is not None
        await asyncio.wait({first.task})
        assert process._current is None
        await process.close()

    asyncio.run(used_once())
