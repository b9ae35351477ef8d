"""Logins without sockets: many at once, some that are abandoned, and passwords that change during the login."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from offsetlake.auth import login_attempts
from offsetlake.auth.credentials import Credentials
from offsetlake.auth.login_attempts import MAX_FAILURES, LoginAttempts
from offsetlake.serve.apis.dispatch import Service
from offsetlake.serve.net import login
from offsetlake.serve.net.connection import Connection
from offsetlake.serve.net.frame_memory import Memory
from offsetlake.serve.net.login import Login
from offsetlake.serve.net.turns import Turns
from support.serve.in_process import SECONDS, InProcess
from support.serve.loop_clock import advance
from support.serve.secured import SASL_AUTHENTICATE, SASL_HANDSHAKE, scram_first, scram_last
from support.serve.sink import Sink
from support.serve.wire_client import frame, read_answer, request
from support.serve.wire_client import plain as as_plain

NAME, PASSWORD = "billing", "billing-secret"
FAILED = 58


class Logins:
    """Logins to a server with one user."""

    def __init__(self, service: InProcess) -> None:
        self.loop, self.security = service.loop, service.parts.security
        self.security.credentials = known(PASSWORD)
        self._service = service

    def connect(self, mechanism: str, host: str = "192.0.2.1") -> tuple[Login, Sink]:
        connection, sink = Login(self.security, self._service.admin.take, self._connected, self.loop), Sink()
        connection.client.address = f"{host}:4711"
        assert self.security.connections.admit(connection, connection.client)
        connection.connection_made(cast("asyncio.Transport", sink))
        assert self.ask(connection, sink, SASL_HANDSHAKE, {"mechanism": mechanism})["error_code"] in {0, 33}
        return connection, sink

    def _connected(self, client: Any) -> Connection:
        components = self._service.parts
        service = Service(components.commits, components.fetches, components.dispatcher, client)
        return Connection(service, client, self.security.connections, Turns(self.loop, Memory()))

    def send(self, connection: Login, sink: Sink, api: int, values: dict[str, Any]) -> None:
        sink.written = b""
        connection.data_received(frame(api, 1, 1, request(api, 1, values)))

    def ask(self, connection: Login, sink: Sink, api: int, values: dict[str, Any]) -> dict[str, Any]:
        self.send(connection, sink, api, values)
        return self.answer(sink, api)

    def answer(self, sink: Sink, api: int) -> dict[str, Any]:
        self.wait_for(lambda: sink.written != b"")
        answer: dict[str, Any] = as_plain(read_answer(api, 1, sink.written[4:])[1])
        return answer

    def wait_for(self, done: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with asyncio.timeout(SECONDS):
                while not done():
                    await asyncio.sleep(0)

        self.loop.run_until_complete(wait())


def known(password: str) -> Credentials:
    credentials = Credentials()
    credentials.add_user(NAME, password)
    return credentials


def plain(name: str = NAME, password: str = PASSWORD) -> dict[str, bytes]:
    return {"auth_bytes": f"\0{name}\0{password}".encode()}


@pytest.fixture
def logins(served: InProcess, monkeypatch: pytest.MonkeyPatch) -> Logins:
    monkeypatch.setattr(login, "FAILURE_DELAY_SECONDS", 0)
    return Logins(served)


def test_failed_login_is_answered_after_a_delay(
    logins: Logins, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(login, "FAILURE_DELAY_SECONDS", 3600)
    connection, sink = logins.connect("PLAIN")
    with caplog.at_level(logging.WARNING):
        logins.send(connection, sink, SASL_AUTHENTICATE, plain(password="wrong"))  # noqa: S106 - made up
        logins.wait_for(lambda: "unknown user or wrong password" in caplog.text)
    assert sink.written == b""
    advance(logins.loop, 3600)
    assert logins.answer(sink, SASL_AUTHENTICATE)["error_code"] == FAILED
    logins.wait_for(lambda: sink.closed)


@pytest.fixture
def busy(logins: Logins) -> Iterator[threading.Event]:
    """Keep the thread that checks passwords busy until this event is set."""
    release = threading.Event()
    logins.security.attempts.check("192.0.2.9", release.wait, logins.loop)
    yield release
    release.set()


@pytest.mark.parametrize(
    ("limit", "host", "reason"),
    [
        ("MAX_WAITING", "192.0.2.2", "the limit of 2 waiting logins is reached"),
        ("MAX_WAITING_OF_ADDRESS", "192.0.2.1", "the limit of 2 waiting logins per address is reached"),
    ],
)
def test_login_above_the_limit_of_waiting_logins_is_closed_without_a_response(
    logins: Logins,
    busy: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limit: str,
    host: str,
    reason: str,
) -> None:
    """For clients SASL_AUTHENTICATION_FAILED (58) is final, but they connect again when a connection is closed."""
    monkeypatch.setattr(login_attempts, limit, 2)
    waiting = [logins.connect("PLAIN") for _ in range(2)]
    for connection, sink in waiting:
        logins.send(connection, sink, SASL_AUTHENTICATE, plain())
    refused, unanswered = logins.connect("PLAIN", host)
    with caplog.at_level(logging.WARNING):
        logins.send(refused, unanswered, SASL_AUTHENTICATE, plain())
        logins.wait_for(lambda: unanswered.closed)
    assert unanswered.written == b""
    assert caplog.messages == [f"Login from {host}:4711 failed: {reason}"]
    busy.set()
    assert [logins.answer(sink, SASL_AUTHENTICATE)["error_code"] for _, sink in waiting] == [0, 0]
    assert logins.ask(*logins.connect("PLAIN", host), SASL_AUTHENTICATE, plain())["error_code"] == 0


def test_password_checks_of_addresses_take_turns(logins: Logins, busy: threading.Event) -> None:
    """At most one of many waiting passwords of one address is checked before that of another address."""
    many = [logins.connect("PLAIN") for _ in range(50)]
    for connection, sink in many:
        logins.send(connection, sink, SASL_AUTHENTICATE, plain(NAME, "wrong"))
    single, single_sink = logins.connect("PLAIN", "2001:db8::1")
    logins.send(single, single_sink, SASL_AUTHENTICATE, plain())
    busy.set()
    assert logins.answer(single_sink, SASL_AUTHENTICATE)["error_code"] == 0
    assert sum(sink.written != b"" for _, sink in many) <= 1


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_address_with_many_failures_has_one_attempt_per_second(logins: Logins, mechanism: str) -> None:
    clock = Clock()
    logins.security.attempts = LoginAttempts(clock)

    def log_in(host: str, password: str = PASSWORD) -> int | None:
        """Return the error code, or None if the connection was closed without an answer."""
        connection, sink = logins.connect(mechanism, host)
        message = plain(password=password)
        if mechanism != "PLAIN":
            first = scram_first(NAME)
            logins.send(connection, sink, SASL_AUTHENTICATE, {"auth_bytes": first})
            if sink.written:
                server_first = logins.answer(sink, SASL_AUTHENTICATE)["auth_bytes"]
                message = {"auth_bytes": scram_last(mechanism, password, first, server_first)}
        sink.written = b""
        logins.send(connection, sink, SASL_AUTHENTICATE, message)
        logins.wait_for(lambda: sink.written != b"" or sink.closed)
        return logins.answer(sink, SASL_AUTHENTICATE)["error_code"] if sink.written else None

    codes = [log_in("2001:db8::1", "wrong") for _ in range(MAX_FAILURES)]
    assert codes == [FAILED] * MAX_FAILURES
    assert log_in("2001:db8::2") is None, "the limit applies to the whole network, and to correct passwords"
    assert log_in("2001:db8:0:1::1") == 0
    clock.now += 1
    assert [log_in("2001:db8::1") for _ in range(3)] == [0, 0, 0], "successful logins do not count"
    assert [log_in("2001:db8::1", "wrong") for _ in range(2)] == [FAILED, None]


def test_password_of_an_abandoned_login_is_not_checked(
    logins: Logins, busy: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    matches = Credentials.password_matches

    def record(credentials: Credentials, name: str, password: bytes) -> bool:
        checked.append(name)
        return matches(credentials, name, password)

    monkeypatch.setattr(Credentials, "password_matches", record)
    for name in ("disconnected", "expired", NAME):
        connection, sink = logins.connect("PLAIN")
        logins.send(connection, sink, SASL_AUTHENTICATE, plain(name))
        if name == "disconnected":
            connection.connection_lost(None)
        elif name == "expired":
            connection._expire()
    busy.set()
    assert logins.answer(sink, SASL_AUTHENTICATE)["error_code"] == 0
    assert checked == [NAME]


@pytest.mark.parametrize("newer", [None, "another password"])
def test_login_fails_if_the_password_changes_while_it_is_checked(
    logins: Logins, busy: threading.Event, caplog: pytest.LogCaptureFixture, newer: str | None
) -> None:
    connection, sink = logins.connect("PLAIN")
    logins.send(connection, sink, SASL_AUTHENTICATE, plain())
    logins.security.credentials = Credentials() if newer is None else known(newer)
    busy.set()
    with caplog.at_level(logging.WARNING):
        assert logins.answer(sink, SASL_AUTHENTICATE)["error_code"] == FAILED
    assert caplog.messages == [
        "Login from 192.0.2.1:4711 failed: user 'billing': its password changed during the login"
    ]


@pytest.mark.parametrize("changes", [True, False])
def test_login_fails_only_if_the_password_of_its_user_changes_between_messages(
    logins: Logins, caplog: pytest.LogCaptureFixture, changes: bool
) -> None:
    mechanism, first = "SCRAM-SHA-256", scram_first(NAME)
    connection, sink = logins.connect(mechanism)
    server_first = logins.ask(connection, sink, SASL_AUTHENTICATE, {"auth_bytes": first})["auth_bytes"]
    previous = logins.security.credentials
    assert previous is not None
    newer = known("another password") if changes else Credentials(dict(previous.users))
    logins.security.credentials = newer
    last = scram_last(mechanism, PASSWORD, first, server_first)
    with caplog.at_level(logging.WARNING):
        answer = logins.ask(connection, sink, SASL_AUTHENTICATE, {"auth_bytes": last})
    assert (answer["error_code"], connection.client.principal) == (
        (FAILED, "User:ANONYMOUS") if changes else (0, "User:billing")
    )
    assert ["its password changed during the login" in line for line in caplog.messages] == [True] * changes


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
def test_long_name_is_truncated_in_the_log(
    logins: Logins, caplog: pytest.LogCaptureFixture, mechanism: str, message: bytes
) -> None:
    with caplog.at_level(logging.WARNING):
        connection, sink = logins.connect(mechanism)
        if message:
            assert logins.ask(connection, sink, SASL_AUTHENTICATE, {"auth_bytes": message})["error_code"] == FAILED
    (line,) = caplog.messages
    assert f"'{'x' * 255}…'" in line
    assert len(line) < 400


def test_long_name_in_the_final_message_is_truncated_in_the_log(
    logins: Logins, caplog: pytest.LogCaptureFixture
) -> None:
    connection, sink = logins.connect("SCRAM-SHA-256")
    server_first = logins.ask(connection, sink, SASL_AUTHENTICATE, {"auth_bytes": scram_first(LONG)})["auth_bytes"]
    last = scram_last("SCRAM-SHA-256", PASSWORD, scram_first(LONG), server_first)
    with caplog.at_level(logging.WARNING):
        assert logins.ask(connection, sink, SASL_AUTHENTICATE, {"auth_bytes": last})["error_code"] == FAILED
    assert [len(line) < 400 for line in caplog.messages] == [True]
