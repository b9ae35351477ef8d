"""A console in a thread of the test, and its responses."""

import http.client
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urljoin, urlsplit

import uvicorn
from starlette.types import ASGIApp

from offsetlake.auth.security_files import SecurityFiles, SecurityPaths
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.web.console.access import Gate
from offsetlake.web.console.app import application

POLICY = RetentionPolicy(7 * 86_400_000)


class Answer(NamedTuple):
    """The status, the headers with names in lower case, and the text of a response."""

    status: int
    headers: dict[str, str]
    text: str


def gate(*, allows_changes: bool = False, **files: str) -> Gate:
    """Return a gate for the credentials and ACL in files; without them everyone sees everything."""
    return Gate(SecurityFiles(SecurityPaths(**files)), allows_changes)


@contextmanager
def served(lake: Path, visitors: Gate | None = None, **options: Any) -> Iterator[int]:
    """Serve the console of a lake, and yield the port."""
    with running(application(lake, visitors or gate(), **{"policy": POLICY, **options})) as port:
        yield port


@contextmanager
def running(app: ASGIApp) -> Iterator[int]:
    """Serve an application, and yield the port."""
    config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=60)
    server, listener = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def get(port: int, path: str, host: str = "localhost", **headers: str) -> Answer:
    """Return the response to a GET request; underscores in the names of headers are minuses."""
    return request(port, "GET", path, host, headers)


def post(port: int, path: str, fields: Mapping[str, object], **headers: str) -> Answer:
    """Return the response to a form that a page of the console submits; a header that is empty is omitted."""
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    own |= {"Content-Type": "application/x-www-form-urlencoded"}
    own |= {name.replace("_", "-").title(): value for name, value in headers.items()}
    return request(port, "POST", path, "localhost", own, urlencode(fields, doseq=True))


def request(
    port: int, method: str, path: str, host: str, headers: Mapping[str, str], body: str | None = None
) -> Answer:
    """Return the response to a request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    given = {name.replace("_", "-"): value for name, value in headers.items() if value}
    try:
        connection.request(method, path, body, {"Host": host, **given})
        response = connection.getresponse()
        answered = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, answered, response.read().decode("utf-8"))
    finally:
        connection.close()


MAX_PAGES = 120


def linked(port: int, first: str, below: Callable[[str], str]) -> set[str]:
    """Return the addresses that pages refer to, beginning at the first one, of at most MAX_PAGES pages.

    Each address must be the first one or begin with the path that `below` returns for the page that refers to it.
    """
    waiting, seen = deque([first]), {first}
    while waiting and len(seen) < MAX_PAGES:
        path = waiting.popleft()
        answer = get(port, path)
        assert answer.status in {200, 403}, (path, answer.text)  # changes are not allowed
        for tag, attributes in Page(answer.text).tags:
            for name in {"href", "src", "action", "formaction", "data-series", "data-step"} & attributes.keys():
                target = urljoin(path, str(attributes[name]).partition("#")[0])
                assert urlsplit(target).netloc == ""
                assert target == first or target.startswith(below(path)), (path, tag, target)
                if tag in {"a", "link", "script", "figure"} and target not in seen and name != "data-step":
                    seen.add(target)
                    waiting.append(target)
    return seen


class Page(HTMLParser):
    """The parts of a page that tests compare.

    Attributes:
        tags: All elements, each with its attributes.
        rows: The texts of the cells of each row in the body of the table.
        command: The command to copy.
        text: All text.
        links: The addresses of links by their text.

    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.command, self.text, self.links = "", "", dict[str, str]()
        self._in_body, self._open = False, list[str]()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)
        self._in_body = self._in_body or tag == "tbody"
        if tag == "tr" and self._in_body:
            self.rows.append([])
        if tag in {"td", "th"} and self._in_body:
            self.rows[-1].append("")
        if data := dict(attrs).get("data-copy"):
            self.command = data

    def handle_endtag(self, tag: str) -> None:
        self._in_body = self._in_body and tag != "tbody"
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_body and {"td", "th"} & {*self._open} and self.rows:
            self.rows[-1][-1] += data
        if self._open[-1:] == ["a"]:
            self.links[data] = self.tags[-1][1].get("href") or ""
