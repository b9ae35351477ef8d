"""HTTP where something is wrong with the server: it says so, and nothing else."""

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

from offsetlake.errors import BadRequest, LogUnavailable
from offsetlake.kafka.batches.writer import Batch
from offsetlake.serve import logs
from offsetlake.serve.auth import tls
from offsetlake.serve.auth.principals import Client
from offsetlake.serve.http import api as http_api
from offsetlake.serve.http import connection as http_connection
from offsetlake.serve.http.answers import MAX_OFFSETS, WantedCommit
from offsetlake.serve.http.server import HttpServer
from offsetlake.serve.net.connections import Connections
from offsetlake.serve.storage.child_process import ChildFailed
from support.serve.commands import EMPTY
from support.serve.http_client import Answer, ask, exchange, problem
from support.serve.in_process import InProcess, Origin
from support.serve.secured import secured

COMMIT = {"group": "g", "offsets": [exchange(None, 1)]}


class OverHttp:
    """A service without a Kafka port; its loop runs while it is asked."""

    def __init__(self, service: InProcess) -> None:
        self.service, self._loop = service, service.loop
        self._server = self._loop.run_until_complete(self._listening())
        self.port = self._server.port

    async def _listening(self) -> HttpServer:
        return HttpServer(self.service.parts, "127.0.0.1", 0)

    def ask(self, *asked: Any, **query: Any) -> Answer:
        url = f"http://127.0.0.1:{self.port}"
        answering = self._loop.run_in_executor(None, lambda: ask(url, *asked, **query))
        return self._loop.run_until_complete(answering)

    def close(self) -> None:
        self._loop.run_until_complete(self._server.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())


@pytest.fixture
def http(loading: InProcess) -> Iterator[OverHttp]:
    made = OverHttp(loading)
    yield made
    made.close()


@pytest.mark.slow
def test_until_it_is_loaded_it_is_alive_and_no_more(http: OverHttp) -> None:
    assert http.ask("GET", "/livez").status == 200
    for asked in (
        ("GET", "/readyz"),
        ("GET", "/v1/snapshot"),
        ("GET", "/v1/groups"),
        ("GET", f"/v1/offsets?group={EMPTY}"),
        ("GET", f"/v1/offsets?group={EMPTY}&as_of=1"),
        ("POST", "/v1/commit", COMMIT),
        ("DELETE", f"/v1/groups?group={EMPTY}"),
        ("DELETE", f"/v1/offsets?group={EMPTY}&topic=orders&partition=0"),
    ):
        answer = http.ask(*asked)
        assert (answer.status, problem(answer)) == (503, "loading")
        assert answer.headers["retry-after"] == "1"
    told = http.ask("GET", "/metrics").body
    assert "offsetlake_ready 0.0" in told
    assert "offsetlake_snapshot_version" not in told
    http.service.load()
    assert http.ask("GET", "/readyz").status == 200
    assert http.ask("GET", f"/v1/offsets?group={EMPTY}").status == 200


def test_a_disk_that_takes_no_more_is_told_and_reads_go_on(http: OverHttp, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_partition: int, _batches: list[Batch]) -> list[int]:
        raise LogUnavailable("no space")

    http.service.load()
    with monkeypatch.context() as patched:
        patched.setattr(http.service.appender, "append", full)
        refused = [http.ask("POST", "/v1/commit", COMMIT), http.ask("DELETE", f"/v1/groups?group={EMPTY}")]
    assert [problem(of) for of in refused] == ["log-broken"] * 2
    assert http.ask("GET", "/readyz").status == 200  # it may have space again, and tries
    assert http.ask("POST", "/v1/commit", COMMIT).status == 200


def test_a_log_that_is_broken_is_not_ready(http: OverHttp, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise LogUnavailable("the disk is gone")

    http.service.load()
    with monkeypatch.context() as patched:
        patched.setattr(http.service.appender, "sync", lost)
        assert problem(http.ask("POST", "/v1/commit", COMMIT)) == "log-broken"
    ready = http.ask("GET", "/readyz")
    assert (ready.status, problem(ready)) == (503, "log-broken")
    assert "the disk is gone" in ready.body["detail"]
    assert problem(http.ask("POST", "/v1/commit", COMMIT)) == "log-broken"
    assert http.ask("GET", f"/v1/offsets?group={EMPTY}").status == 200
    assert "offsetlake_log_broken 1.0" in http.ask("GET", "/metrics").body


def test_topics_that_are_not_named_take_no_commit(tmp_path: Path, origin: Origin) -> None:
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


def test_a_group_over_its_quota_commits_nothing(tmp_path: Path, origin: Origin) -> None:
    service = InProcess(tmp_path, origin, quota=0.01)  # the first may come at once
    http = OverHttp(service)
    service.load()
    assert http.ask("POST", "/v1/commit", COMMIT).status == 200
    refused = http.ask("POST", "/v1/commit", {"group": "g", "offsets": [exchange(1, 2)]})
    assert (refused.status, problem(refused)) == (429, "too-many-commits")
    assert refused.headers["retry-after"] == "10"
    assert [of["committed_offset"] for of in http.ask("GET", "/v1/offsets?group=g").body["offsets"]] == [1]
    http.close()
    service.close()


def test_a_fault_of_the_program_is_in_the_log_and_not_in_the_answer(
    http: OverHttp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    http.service.load()
    monkeypatch.setattr(http.service.store, "moment", lambda _group: 1 / 0)
    with caplog.at_level(logging.ERROR):
        answer = http.ask("GET", f"/v1/offsets?group={EMPTY}")
    assert (answer.status, problem(answer)) == (500, "internal")
    assert "division" not in str(answer.body)
    assert "ZeroDivisionError" in caplog.text


def test_lines_of_uvicorn_are_limited(
    http: OverHttp, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request that is not HTTP causes one."""
    monkeypatch.setattr(logs, "CLIENT_LINES", 20)

    async def send_garbage() -> None:
        for _ in range(25):
            reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
            writer.write(b"\0\r\n\r\n")
            await reader.read()
            writer.close()

    http.service.loop.run_until_complete(send_garbage())
    lines = [record for record in caplog.records if record.name == "uvicorn.error"]
    assert len(lines) <= 20


def test_a_port_that_is_taken_is_told(http: OverHttp) -> None:
    async def listen_again() -> None:
        HttpServer(http.service.parts, "127.0.0.1", http.port)

    with pytest.raises(BadRequest, match="cannot listen for HTTP on"):
        http.service.loop.run_until_complete(listen_again())


def test_a_form_that_a_page_elsewhere_may_send_commits_nothing(http: OverHttp) -> None:
    """A browser on this machine sends such a body for anybody's page; JSON it asks for first, and is refused."""
    http.service.load()
    sent = json.dumps(COMMIT).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        refused = http.ask("POST", "/v1/commit", sent, kind)
        assert problem(refused) == "makes-no-sense"
        assert "send a header `Content-Type: application/json`" in refused.body["detail"]
    assert http.ask("OPTIONS", "/v1/commit").status == 405
    assert http.ask("GET", "/v1/offsets?group=g").status == 404


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "127.evil.example:9093", "localhost.", ""])
def test_a_name_that_somebody_has_lead_here_gets_nothing(http: OverHttp, host: str) -> None:
    http.service.load()
    for asked in (("GET", "/v1/groups"), ("POST", "/v1/commit", COMMIT), ("DELETE", f"/v1/groups?group={EMPTY}")):
        answer = http.ask(*asked, host=host)
        assert (answer.status, problem(answer)) == (421, "misdirected")
    for ours in ("localhost:9093", "127.0.0.1", "[::1]:9093"):
        assert http.ask("GET", f"/v1/offsets?group={EMPTY}", host=ours).status == 200


@pytest.mark.slow
def test_a_lake_that_does_not_answer_holds_up_nothing(http: OverHttp, monkeypatch: pytest.MonkeyPatch) -> None:
    http.service.load()
    missing = http.ask("GET", f"/v1/offsets?group={EMPTY}&as_of=1")  # nothing made a lake here
    assert (missing.status, problem(missing)) == (503, "history-unavailable")
    assert "no lake in" in missing.body["detail"]
    monkeypatch.setattr(http_api, "HISTORY_SECONDS", 0.01)
    late = http.ask("GET", f"/v1/offsets?group={EMPTY}&as_of=1")
    assert problem(late) == "history-unavailable"
    assert "did not say within" in late.body["detail"]
    assert http.ask("GET", f"/v1/offsets?group={EMPTY}").status == 200


def test_an_answer_to_nobody_breaks_no_write(http: OverHttp) -> None:
    """Who asked has been given up when the write is done: others go on."""
    http.service.load()
    api = http_api.Api(http.service.parts, None)  # type: ignore[arg-type]

    request = Request({"type": "http", "headers": [], "client": None, "state": {"client": Client()}})

    async def given_up() -> None:
        wanted = http_api.answers.WantedCommit.model_validate(COMMIT)
        asked = http_api.answers.OfGroup(group=EMPTY)
        for handler in (api.commit(request, wanted), api.delete_group(request, asked)):
            task = asyncio.create_task(handler)
            await asyncio.sleep(0)
            task.cancel()
        await http.service.writes.rest()

    http.service.loop.run_until_complete(given_up())
    assert http.ask("GET", "/v1/offsets?group=g").status == 200
    assert http.ask("POST", "/v1/commit", {"group": "g", "offsets": [exchange(1, 2)]}).status == 200


@pytest.fixture
def connecting(http: OverHttp) -> Iterator[Callable[[bytes], socket.socket]]:
    """Connects by hand and sends some bytes."""
    with ExitStack() as stack:

        def connect(sent: bytes) -> socket.socket:
            made = stack.enter_context(socket.create_connection(("127.0.0.1", http.port), timeout=5))
            made.sendall(sent)
            return made

        yield connect


def received(http: OverHttp, client: socket.socket) -> bytes:
    """Wait for what comes, or the end."""
    return http.service.loop.run_until_complete(http.service.loop.run_in_executor(None, client.recv, 1 << 16))


@pytest.mark.parametrize("by_tls", [False, True])
def test_connections_count_until_they_end(
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
    assert "2 of its address (max_connections_per_address)" in caplog.text
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
def test_a_request_that_does_not_come_whole_ends_its_connection(
    http: OverHttp, connecting: Callable[[bytes], socket.socket], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_SECONDS", 0.05)
    http.service.load()
    slow = connecting(sent)
    while received(http, slow):
        pass
    assert len(http.service.parts.security.connections) == 0


def test_an_answer_takes_the_time_it_takes(http: OverHttp, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[Any] = []

    async def asked(*_: Any) -> Any:
        waiting.extend(of._too_late for of, _ in http.service.parts.security.connections)  # type: ignore[attr-defined]
        raise ChildFailed("nothing is known", 6)

    http.service.load()
    monkeypatch.setattr(http_api, "ask", asked)
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
def test_a_body_that_is_wrong_in_many_places_is_refused_by_the_first_of_them(body: Any) -> None:
    """An error for each of them would take a minute, during which nobody is answered."""
    with pytest.raises(ValidationError) as refused:
        WantedCommit.model_validate(body)
    assert refused.value.error_count() < 10
