"""HTTP while the server is loading, its log is broken, or an internal error occurs; limits and connections."""

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.requests import Request

from offsetlake.auth import tls
from offsetlake.errors import BadRequest, LogUnavailable
from offsetlake.serve.net.client import Client
from offsetlake.serve.net.connections import Connections
from offsetlake.serve.storage.child_process import ChildFailed
from offsetlake.util import log_lines
from offsetlake.web.http import connection as http_connection
from offsetlake.web.http.api import history
from offsetlake.web.http.api.request_models import MAX_OFFSETS, CommitBody, GroupQuery
from offsetlake.web.http.api.routes import Api
from offsetlake.web.http.server import HttpServer
from support.serve.commands import EMPTY
from support.serve.http_client import Answer, ask, exchange, problem
from support.serve.in_process import InProcess, Origin
from support.serve.secured import secured

COMMIT = {"group": "g", "offsets": [exchange(None, 1)]}


class OverHttp:
    """A service without a Kafka port, whose event loop runs during the requests."""

    def __init__(self, service: InProcess) -> None:
        self.service, self._loop = service, service.loop
        self._server = self._loop.run_until_complete(self._listening())
        self.port = self._server.port

    async def _listening(self) -> HttpServer:
        return HttpServer(self.service.parts, "127.0.0.1", 0)

    def ask(self, *request: Any, **query: Any) -> Answer:
        url = f"http://127.0.0.1:{self.port}"
        answering = self._loop.run_in_executor(None, lambda: ask(url, *request, **query))
        return self._loop.run_until_complete(answering)

    def close(self) -> None:
        self._loop.run_until_complete(self._server.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())


@pytest.fixture
def http(loading: InProcess) -> Iterator[OverHttp]:
    over_http = OverHttp(loading)
    yield over_http
    over_http.close()


@pytest.mark.slow
def test_requests_fail_with_loading_until_the_log_is_loaded(http: OverHttp) -> None:
    assert http.ask("GET", "/livez").status == 200
    for request in (
        ("GET", "/readyz"),
        ("GET", "/v1/snapshot"),
        ("GET", "/v1/groups"),
        ("GET", f"/v1/offsets?group={EMPTY}"),
        ("GET", f"/v1/offsets?group={EMPTY}&as_of=1"),
        ("POST", "/v1/commit", COMMIT),
        ("DELETE", f"/v1/groups?group={EMPTY}"),
        ("DELETE", f"/v1/offsets?group={EMPTY}&topic=orders&partition=0"),
    ):
        answer = http.ask(*request)
        assert (answer.status, problem(answer)) == (503, "loading")
        assert answer.headers["retry-after"] == "1"
    metrics = http.ask("GET", "/metrics").body
    assert "offsetlake_ready 0.0" in metrics
    assert "offsetlake_snapshot_version" not in metrics
    http.service.load()
    assert http.ask("GET", "/readyz").status == 200
    assert http.ask("GET", f"/v1/offsets?group={EMPTY}").status == 200


def test_full_disk_refuses_writes_until_there_is_space(http: OverHttp) -> None:
    http.service.load()
    with http.service.full_disk():
        refused = [http.ask("POST", "/v1/commit", COMMIT), http.ask("DELETE", f"/v1/groups?group={EMPTY}")]
    assert [problem(answer) for answer in refused] == ["log-not-writable"] * 2
    assert http.ask("GET", "/readyz").status == 200  # later writes are tried again
    assert http.ask("POST", "/v1/commit", COMMIT).status == 200


def test_server_with_a_broken_log_is_not_ready_but_serves_reads(
    http: OverHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> None:
        raise LogUnavailable("the disk is gone")

    http.service.load()
    with monkeypatch.context() as patched:
        patched.setattr(http.service.appender, "sync", lost)
        assert problem(http.ask("POST", "/v1/commit", COMMIT)) == "log-not-writable"
    ready = http.ask("GET", "/readyz")
    assert (ready.status, problem(ready)) == (503, "log-not-writable")
    assert "the disk is gone" in ready.body["detail"]
    assert problem(http.ask("POST", "/v1/commit", COMMIT)) == "log-not-writable"
    assert http.ask("GET", f"/v1/offsets?group={EMPTY}").status == 200
    assert "offsetlake_log_broken 1.0" in http.ask("GET", "/metrics").body


def test_commits_to_unknown_topics_are_refused(tmp_path: Path, origin: Origin) -> None:
    service = InProcess(tmp_path, origin, {b"orders": 2})
    http = OverHttp(service)
    service.load()
    for topic, partition in (("orders", 2), ("payments", 0)):
        refused = http.ask("POST", "/v1/commit", {"group": "g", "offsets": [exchange(None, 1, topic, partition)]})
        assert (refused.status, problem(refused)) == (404, "partition-not-found")
        gone = http.ask("DELETE", "/v1/offsets", group=EMPTY, topic=topic, partition=partition)
        assert (gone.status, problem(gone)) == (404, "partition-not-found")
    assert http.ask("POST", "/v1/commit", {"group": "g", "offsets": [exchange(None, 1, "orders", 1)]}).status == 200
    http.close()
    service.close()


def test_commit_over_the_quota_is_refused_and_not_written(tmp_path: Path, origin: Origin) -> None:
    service = InProcess(tmp_path, origin, quota=0.01)  # only the first commit has a token
    http = OverHttp(service)
    service.load()
    assert http.ask("POST", "/v1/commit", COMMIT).status == 200
    refused = http.ask("POST", "/v1/commit", {"group": "g", "offsets": [exchange(1, 2)]})
    assert (refused.status, problem(refused)) == (429, "too-many-commits")
    assert refused.headers["retry-after"] == "10"
    assert [row["committed_offset"] for row in http.ask("GET", "/v1/offsets?group=g").body["offsets"]] == [1]
    http.close()
    service.close()


def test_internal_error_is_logged_and_not_in_the_answer(
    http: OverHttp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    http.service.load()
    monkeypatch.setattr(http.service.store, "group_offsets", lambda _group: 1 / 0)
    with caplog.at_level(logging.ERROR):
        answer = http.ask("GET", f"/v1/offsets?group={EMPTY}")
    assert (answer.status, problem(answer)) == (500, "internal")
    assert "division" not in str(answer.body)
    assert "ZeroDivisionError" in caplog.text


def test_log_lines_of_uvicorn_are_limited(
    http: OverHttp, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each invalid HTTP request causes one."""
    monkeypatch.setattr(log_lines, "CLIENT_LINES", 20)

    async def send_garbage() -> None:
        for _ in range(25):
            reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
            writer.write(b"\0\r\n\r\n")
            await reader.read()
            writer.close()

    http.service.loop.run_until_complete(send_garbage())
    lines = [record for record in caplog.records if record.name == "uvicorn.error"]
    assert len(lines) <= 20


def test_port_in_use_is_reported(http: OverHttp) -> None:
    async def listen_again() -> None:
        HttpServer(http.service.parts, "127.0.0.1", http.port)

    with pytest.raises(BadRequest, match="Cannot listen for HTTP on"):
        http.service.loop.run_until_complete(listen_again())


def test_body_with_a_form_content_type_is_refused(http: OverHttp) -> None:
    """A browser sends such a body for any foreign page; for JSON it sends a preflight request, which is refused."""
    http.service.load()
    sent = json.dumps(COMMIT).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        refused = http.ask("POST", "/v1/commit", sent, kind)
        assert problem(refused) == "invalid-request"
        assert "must be JSON with `Content-Type: application/json`" in refused.body["detail"]
    assert http.ask("OPTIONS", "/v1/commit").status == 405
    assert http.ask("GET", "/v1/offsets?group=g").status == 404


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "127.evil.example:9093", "localhost.", ""])
def test_request_for_a_foreign_host_name_is_refused(http: OverHttp, host: str) -> None:
    http.service.load()
    requests = (("GET", "/v1/groups"), ("POST", "/v1/commit", COMMIT), ("DELETE", f"/v1/groups?group={EMPTY}"))
    for request in requests:
        answer = http.ask(*request, host=host)
        assert (answer.status, problem(answer)) == (421, "misdirected")
    for local in ("localhost:9093", "127.0.0.1", "[::1]:9093"):
        assert http.ask("GET", f"/v1/offsets?group={EMPTY}", host=local).status == 200


@pytest.mark.slow
def test_unavailable_lake_affects_only_requests_for_the_history(
    http: OverHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    http.service.load()
    missing = http.ask("GET", f"/v1/offsets?group={EMPTY}&as_of=1")  # there is no lake
    assert (missing.status, problem(missing)) == (503, "history-unavailable")
    assert "no lake in" in missing.body["detail"]
    monkeypatch.setattr(history, "MAX_HISTORY_SECONDS", 0.01)
    late = http.ask("GET", f"/v1/offsets?group={EMPTY}&as_of=1")
    assert problem(late) == "history-unavailable"
    assert "did not finish within" in late.body["detail"]
    assert http.ask("GET", f"/v1/offsets?group={EMPTY}").status == 200


def test_write_of_a_disconnected_client_does_not_affect_others(http: OverHttp) -> None:
    """The request is cancelled before its write is done."""
    http.service.load()
    api = Api(http.service.parts, None)  # type: ignore[arg-type]

    request = Request({"type": "http", "headers": [], "client": None, "state": {"client": Client()}})

    async def cancel_requests() -> None:
        body = CommitBody.model_validate(COMMIT)
        query = GroupQuery(group=EMPTY)
        for handler in (api.commit(request, body), api.delete_group(request, query)):
            task = asyncio.create_task(handler)
            await asyncio.sleep(0)
            task.cancel()
        await http.service.writes.drain()

    http.service.loop.run_until_complete(cancel_requests())
    assert http.ask("GET", "/v1/offsets?group=g").status == 200
    assert http.ask("POST", "/v1/commit", {"group": "g", "offsets": [exchange(1, 2)]}).status == 200


@pytest.fixture
def connecting(http: OverHttp) -> Iterator[Callable[[bytes], socket.socket]]:
    """Return a function that connects a socket and sends bytes."""
    with ExitStack() as stack:

        def connect(sent: bytes) -> socket.socket:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", http.port), timeout=120))
            client.sendall(sent)
            return client

        yield connect


def received(http: OverHttp, client: socket.socket) -> bytes:
    """Wait for bytes or the end of the connection."""
    return http.service.loop.run_until_complete(http.service.loop.run_in_executor(None, client.recv, 1 << 16))


@pytest.mark.parametrize("by_tls", [False, True])
def test_connections_are_counted_until_they_end(
    http: OverHttp,
    connecting: Callable[[bytes], socket.socket],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    by_tls: bool,
) -> None:
    security = http.service.parts.security
    security.connections = counted = Connections(3, 2)
    if by_tls:
        secured(tmp_path)
        security.http_tls = tls.context(tmp_path / "server.pem", tmp_path / "server.key", None)
    silent = [connecting(b"") for _ in range(3)]
    with caplog.at_level(logging.WARNING):
        assert received(http, silent[2]) == b""
    assert "the limit of 2 connections per address (max_connections_per_address)" in caplog.text
    assert len(counted) == 2
    silent[0].close()
    while len(counted) > 1:
        http.service.loop.run_until_complete(asyncio.sleep(0))
    security.http_tls = None
    assert http.ask("GET", "/livez").status == 200
    while len(counted) > 1:
        http.service.loop.run_until_complete(asyncio.sleep(0))


HEAD = b"POST /v1/commit HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", HEAD[:20], HEAD + b"{", HEAD.replace(b"POST", b"PUT") + b"{"])
def test_connection_with_an_incomplete_request_is_closed(
    http: OverHttp, connecting: Callable[[bytes], socket.socket], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_connection, "MAX_REQUEST_SECONDS", 0.05)
    http.service.load()
    slow = connecting(sent)
    while received(http, slow):
        pass
    assert len(http.service.parts.security.connections) == 0


def test_request_timeout_does_not_apply_to_answers(http: OverHttp, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[Any] = []

    async def fail(*_: Any) -> Any:
        waiting.extend(connection._request_timeout for connection, _ in http.service.parts.security.connections)  # type: ignore[attr-defined]
        raise ChildFailed("the query failed", 6)

    http.service.load()
    monkeypatch.setattr(history, "run_child", fail)
    assert problem(http.ask("GET", f"/v1/offsets?group={EMPTY}&as_of=1")) == "history-unavailable"
    assert waiting == [None]


@pytest.mark.parametrize(
    "body",
    [
        {"group": "g", "offsets": [{}] * 100_000},
        {"group": "g", "offsets": [1] * 100_000},
        {"group": "g", "offsets": [exchange(None, number, partition=number) for number in range(MAX_OFFSETS + 1)]},
        {"group": "g", "offsets": [{f"field-{number}": 1 for number in range(50_000)}]},
        {f"field-{number}": 1 for number in range(50_000)},
    ],
)
def test_body_with_many_errors_is_refused_with_few_of_them(body: Any) -> None:
    """An error for each of them would take a minute, during which no other request is answered."""
    with pytest.raises(ValidationError) as refused:
        CommitBody.model_validate(body)
    assert refused.value.error_count() < 10
