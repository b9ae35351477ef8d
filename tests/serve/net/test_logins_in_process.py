"""Logins without sockets: many at once, some that are given up, and passwords that change meanwhile."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from offsetlake.serve.apis.dispatch import Service
from offsetlake.serve.auth import login_attempts
from offsetlake.serve.auth.credentials import Credentials
from offsetlake.serve.auth.login_attempts import MAX_FAILURES, Attempts
from offsetlake.serve.net import login
from offsetlake.serve.net.connection import Connection
from offsetlake.serve.net.frame_memory import Memory
from offsetlake.serve.net.login import Login
from offsetlake.serve.net.turns import Turns
from support.serve.in_process import InProcess
from support.serve.secured import SASL_AUTHENTICATE, SASL_HANDSHAKE, scram_first, scram_last
from support.serve.sink import Sink
from support.serve.wire_client import frame, read_answer, request
from support.serve.wire_client import plain as as_plain

NAME, PASSWORD = "billing", "billing-secret"
FAILED = 58


class Logins:
    """Logins to a service that knows one user."""

    def __init__(self, service: InProcess) -> None:
        self.loop, self.security = service.loop, service.parts.security
        self.security.credentials = known(PASSWORD)
        self._service = service

    def connect(self, mechanism: str, host: str = "192.0.2.1") -> tuple[Login, Sink]:
        made, sink = Login(self.security, self._service.admin.take, self._connected, self.loop), Sink()
        made.client.address = f"{host}:4711"
        assert self.security.connections.admit(made, made.client)
        made.connection_made(cast("asyncio.Transport", sink))
        assert self.ask(made, sink, SASL_HANDSHAKE, {"mechanism": mechanism})["error_code"] in {0, 33}
        return made, sink

    def _connected(self, client: Any) -> Connection:
        of = self._service.parts
        service = Service(of.commits, of.fetches, of.admin, client)
        return Connection(service, client, self.security.connections, Turns(self.loop, Memory()))

    def send(self, made: Login, sink: Sink, api: int, values: dict[str, Any]) -> None:
        sink.written = b""
        made.data_received(frame(api, 1, 1, request(api, 1, values)))

    def ask(self, made: Login, sink: Sink, api: int, values: dict[str, Any]) -> dict[str, Any]:
        self.send(made, sink, api, values)
        return self.answer(sink, api)

    def answer(self, sink: Sink, api: int) -> dict[str, Any]:
        self.wait_for(lambda: sink.written != b"")
        answer: dict[str, Any] = as_plain(read_answer(api, 1, sink.written[4:])[1])
        return answer

    def wait_for(self, done: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with asyncio.timeout(30):
                while not done():
                    await asyncio.sleep(0)

        self.loop.run_until_complete(wait())


def known(password: str) -> Credentials:
    made = Credentials()
    made.add_user(NAME, password)
    return made


def plain(name: str = NAME, password: str = PASSWORD) -> dict[str, bytes]:
    return {"auth_bytes": f"\0{name}\0{password}".encode()}


@pytest.fixture
def logins(served: InProcess, monkeypatch: pytest.MonkeyPatch) -> Logins:
    monkeypatch.setattr(login, "FAILURE_DELAY", 0)
    return Logins(served)


@pytest.fixture
def busy(logins: Logins) -> Iterator[threading.Event]:
    """The thread that checks passwords has to do with something else, until this is set."""
    release = threading.Event()
    logins.security.attempts.check("192.0.2.9", release.wait, logins.loop)
    yield release
    release.set()


@pytest.mark.parametrize(
    ("limit", "host", "said"),
    [
        ("MAX_WAITING", "192.0.2.2", "2 passwords wait to be checked, the limit"),
        ("MAX_WAITING_OF_ADDRESS", "192.0.2.1", "2 passwords of its address wait to be checked, the limit"),
    ],
)
def test_beyond_the_queue_connections_are_closed_without_an_answer(
    logins: Logins,
    busy: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limit: str,
    host: str,
    said: str,
) -> None:
    """Clients take error 58 as final, but connect again when a connection ends."""
    monkeypatch.setattr(login_attempts, limit, 2)
    made = [logins.connect("PLAIN") for _ in range(2)]
    for each, sink in made:
        logins.send(each, sink, SASL_AUTHENTICATE, plain())
    refused, unanswered = logins.connect("PLAIN", host)
    with caplog.at_level(logging.WARNING):
        logins.send(refused, unanswered, SASL_AUTHENTICATE, plain())
        logins.wait_for(lambda: unanswered.closed)
    assert unanswered.written == b""
    assert caplog.messages == [f"{host}:4711 is not let in: {said}"]
    busy.set()
    assert [logins.answer(sink, SASL_AUTHENTICATE)["error_code"] for _, sink in made] == [0, 0]
    assert logins.ask(*logins.connect("PLAIN", host), SASL_AUTHENTICATE, plain())["error_code"] == 0


def test_addresses_take_turns(logins: Logins, busy: threading.Event) -> None:
    """However many passwords of one address wait, one of another is the next but one."""
    many = [logins.connect("PLAIN") for _ in range(50)]
    for each, sink in many:
        logins.send(each, sink, SASL_AUTHENTICATE, plain(NAME, "wrong"))
    one, answered = logins.connect("PLAIN", "2001:db8::1")
    logins.send(one, answered, SASL_AUTHENTICATE, plain())
    busy.set()
    assert logins.answer(answered, SASL_AUTHENTICATE)["error_code"] == 0
    assert sum(sink.written != b"" for _, sink in many) <= 1


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_after_many_failures_an_address_has_one_attempt_a_second(logins: Logins, mechanism: str) -> None:
    clock = Clock()
    logins.security.attempts = Attempts(clock)

    def log_in(host: str, password: str = PASSWORD) -> int | None:
        """Return the error code, or None if the connection was closed without an answer."""
        made, sink = logins.connect(mechanism, host)
        message = plain(password=password)
        if mechanism != "PLAIN":
            first = scram_first(NAME)
            logins.send(made, sink, SASL_AUTHENTICATE, {"auth_bytes": first})
            if sink.written:
                server_first = logins.answer(sink, SASL_AUTHENTICATE)["auth_bytes"]
                message = {"auth_bytes": scram_last(mechanism, password, first, server_first)}
        sink.written = b""
        logins.send(made, sink, SASL_AUTHENTICATE, message)
        logins.wait_for(lambda: sink.written != b"" or sink.closed)
        return logins.answer(sink, SASL_AUTHENTICATE)["error_code"] if sink.written else None

    tried = [log_in("2001:db8::1", "wrong") for _ in range(MAX_FAILURES)]
    assert tried == [FAILED] * MAX_FAILURES
    assert log_in("2001:db8::2") is None, "all of its network, the right password too"
    assert log_in("2001:db8:0:1::1") == 0
    clock.now += 1
    assert [log_in("2001:db8::1") for _ in range(3)] == [0, 0, 0], "what succeeds does not count"
    assert [log_in("2001:db8::1", "wrong") for _ in range(2)] == [FAILED, None]


def test_a_password_nobody_waits_for_is_not_looked_at(
    logins: Logins, busy: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    fits = Credentials.password_fits
    monkeypatch.setattr(
        Credentials, "password_fits", lambda of, name, password: looked_at.append(name) or fits(of, name, password)
    )
    for name in ("gone", "late", NAME):
        made, sink = logins.connect("PLAIN")
        logins.send(made, sink, SASL_AUTHENTICATE, plain(name))
        if name == "gone":
            made.connection_lost(None)
        elif name == "late":
            made._expire()
    busy.set()
    assert logins.answer(sink, SASL_AUTHENTICATE)["error_code"] == 0
    assert looked_at == [NAME]


@pytest.mark.parametrize("newer", [None, "another password"])
def test_a_password_that_changes_while_it_is_looked_at(
    logins: Logins, busy: threading.Event, caplog: pytest.LogCaptureFixture, newer: str | None
) -> None:
    made, sink = logins.connect("PLAIN")
    logins.send(made, sink, SASL_AUTHENTICATE, plain())
    logins.security.credentials = Credentials() if newer is None else known(newer)
    busy.set()
    with caplog.at_level(logging.WARNING):
        assert logins.answer(sink, SASL_AUTHENTICATE)["error_code"] == FAILED
    assert caplog.messages == ["192.0.2.1:4711 is not let in: user 'billing': its password has changed meanwhile"]


@pytest.mark.parametrize("changes", [True, False])
def test_a_password_that_changes_between_two_messages(
    logins: Logins, caplog: pytest.LogCaptureFixture, changes: bool
) -> None:
    """Another user's, or the same file read again, changes nothing."""
    mechanism, first = "SCRAM-SHA-256", scram_first(NAME)
    made, sink = logins.connect(mechanism)
    server_first = logins.ask(made, sink, SASL_AUTHENTICATE, {"auth_bytes": first})["auth_bytes"]
    before = logins.security.credentials
    assert before is not None
    newer = known("another password") if changes else Credentials(dict(before.users))
    logins.security.credentials = newer
    last = scram_last(mechanism, PASSWORD, first, server_first)
    with caplog.at_level(logging.WARNING):
        answer = logins.ask(made, sink, SASL_AUTHENTICATE, {"auth_bytes": last})
    assert (answer["error_code"], made.client.principal) == (
        (FAILED, "User:ANONYMOUS") if changes else (0, "User:billing")
    )
    assert ["its password has changed meanwhile" in line for line in caplog.messages] == [True] * changes


LONG = "x" * 30_000


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        (LONG, b""),
        ("PLAIN", plain(LONG)["auth_bytes"]),
        ("PLAIN", f"{NAME}\0{LONG}\0{PASSWORD}".encode()),
        ("SCRAM-SHA-256", f"n,a={NAME},n={LONG},r=abc".encode()),
    ],
    ids=["mechanism", "plain", "plain as another", "scram as another"],
)
def test_a_long_name_makes_no_long_line(
    logins: Logins, caplog: pytest.LogCaptureFixture, mechanism: str, message: bytes
) -> None:
    with caplog.at_level(logging.WARNING):
        made, sink = logins.connect(mechanism)
        if message:
            assert logins.ask(made, sink, SASL_AUTHENTICATE, {"auth_bytes": message})["error_code"] == FAILED
    (line,) = caplog.messages
    assert f"'{'x' * 255}…'" in line
    assert len(line) < 400


def test_a_last_message_of_a_long_name_makes_no_long_line(logins: Logins, caplog: pytest.LogCaptureFixture) -> None:
    made, sink = logins.connect("SCRAM-SHA-256")
    server_first = logins.ask(made, sink, SASL_AUTHENTICATE, {"auth_bytes": scram_first(LONG)})["auth_bytes"]
    for_it = scram_last("SCRAM-SHA-256", PASSWORD, scram_first(LONG), server_first)
    with caplog.at_level(logging.WARNING):
        assert logins.ask(made, sink, SASL_AUTHENTICATE, {"auth_bytes": for_it})["error_code"] == FAILED
    assert [len(line) < 400 for line in caplog.messages] == [True]
