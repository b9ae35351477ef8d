"""An HTTP client that checks the form of responses."""

import json
import re
import urllib.parse
from http.client import HTTPConnection
from typing import Any, NamedTuple

SECONDS = 120
PROBLEM = "application/problem+json"


class Answer(NamedTuple):
    status: int
    body: Any
    """The decoded JSON, or the text."""
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
    """Send a request, with a body that is bytes or is encoded as JSON; a refusal must be a problem of RFC 9457."""
    address = urllib.parse.urlsplit(url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=SECONDS)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    target = f"{path}?{urllib.parse.urlencode(query)}" if query else path
    fields = {"content-type": None if data is None else kind, "host": host, "authorization": authorization}
    headers = {name: value.encode() for name, value in fields.items() if value is not None}
    try:
        connection.request(method, target, data, headers)
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    response_headers = {name.lower(): value for name, value in response.getheaders()}
    is_json = "json" in response_headers.get("content-type", "")
    answer = Answer(response.status, json.loads(text) if is_json else text, response_headers)
    if answer.status >= 400:
        assert response_headers["content-type"] == PROBLEM, answer
        assert answer.body["status"] == answer.status
        assert answer.body["type"].startswith("urn:offsetlake:")
        assert answer.body["title"]
        assert answer.body["detail"]
        assert "Traceback" not in text
    return answer


def problem(answer: Answer) -> str:
    """Return the name of the problem in a response."""
    return str(answer.body["type"].removeprefix("urn:offsetlake:"))


def exchange(expected: int | None, offset: int, topic: str = "t", partition: int = 0, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "expected": expected, "offset": offset, **more}


def samples(url: str) -> dict[str, float]:
    """Return the metrics for Prometheus, by name and labels as they are written."""
    answer = ask(url, "GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in answer.body.splitlines() if not line.startswith("#")]
    return {match[1]: float(match[2]) for line in lines if (match := re.fullmatch(r"(.+) (\S+)", line))}
