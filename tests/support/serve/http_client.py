"""A client of HTTP that sends what it is told, and looks at how answers are made."""

import json
import re
import urllib.parse
from http.client import HTTPConnection
from typing import Any, NamedTuple

SECONDS = 60
PROBLEM = "application/problem+json"


class Answer(NamedTuple):
    status: int
    body: Any
    """Of JSON what it says, else the text."""
    headers: dict[str, str]


def ask(
    url: str,
    method: str,
    path: str,
    body: Any = None,
    kind: str = "application/json",
    host: str | None = None,
    authorization: str | None = None,
    **query: Any,
) -> Answer:
    """Ask; a body that is not bytes goes as JSON. What is refused must say why by RFC 9457."""
    address = urllib.parse.urlsplit(url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=SECONDS)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    asked = f"{path}?{urllib.parse.urlencode(query)}" if query else path
    named = {"content-type": None if data is None else kind, "host": host, "authorization": authorization}
    headers = {name: value.encode() for name, value in named.items() if value is not None}
    try:
        connection.request(method, asked, data, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    found = {name.lower(): value for name, value in answer.getheaders()}
    of_json = "json" in found.get("content-type", "")
    said = Answer(answer.status, json.loads(text) if of_json else text, found)
    if said.status >= 400:
        assert found["content-type"] == PROBLEM, said
        assert said.body["status"] == said.status
        assert said.body["type"].startswith("urn:offsetlake:")
        assert said.body["title"]
        assert said.body["detail"]
        assert "Traceback" not in text
    return said


def problem(answer: Answer) -> str:
    """Name the problem an answer tells."""
    return str(answer.body["type"].removeprefix("urn:offsetlake:"))


def exchange(expected: int | None, offset: int, topic: str = "t", partition: int = 0, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "expected": expected, "offset": offset, **more}


def samples(url: str) -> dict[str, float]:
    """Give what Prometheus is told, by name and labels as they are written."""
    answer = ask(url, "GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in answer.body.splitlines() if not line.startswith("#")]
    return {match[1]: float(match[2]) for line in lines if (match := re.fullmatch(r"(.+) (\S+)", line))}
