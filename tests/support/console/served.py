"""A console in a thread of the test, and its responses."""

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import uvicorn

from offsetlake.console.app import application


class Answer(NamedTuple):
    """The status, the headers with names in lower case, and the text of a response."""

    status: int
    headers: dict[str, str]
    text: str


@contextmanager
def served(lake: Path) -> Iterator[int]:
    """Serve the console of a lake, and yield the port."""
    config = uvicorn.Config(application(lake), ws="none", lifespan="off", log_config=None)
    server, listener = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def get(port: int, path: str, host: str = "localhost") -> Answer:
    """Return the response to a GET request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        connection.request("GET", path, headers={"Host": host})
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read().decode("utf-8"))
    finally:
        connection.close()


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
