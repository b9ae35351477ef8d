"""Logins without sockets: many at once, some that are given up, and passwords that change meanwhile."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from offsetlake.serve import login
from offsetlake.serve.connection import Connection
from offsetlake.serve.credentials import Credentials
from offsetlake.serve.login import Login
from offsetlake.serve.service import Service
from serve.in_process import InProcess
from serve.secured import SASL_AUTHENTICATE, SASL_HANDSHAKE, scram_first, scram_last
from serve.sink import Sink
from serve.wire_client import frame, read_answer, request
from serve.wire_client import plain as as_plain

NAME, PASSWORD = "billing", "billing-secret"
FAILED = 58


class Logins:
    """Logins to a service that knows one user."""

    def __init__(self, service: InProcess) -> None:
        self.loop, self.security = service.loop, service.parts.security
        self.security.credentials = known(PASSWORD)
        self._service = service

    def connect(self, mechanism: str) -> tuple[Login, Sink]:
        made, sink = Login(self.security, self._service.admin, self._connected, self.loop), Sink()
        made.client.address = "192.0.2.1:4711"
        assert self.security.connections.admit(made, made.client)
        made.connection_made(cast("asyncio.Transport", sink))
        assert self.ask(made, sink, SASL_HANDSHAKE, {"mechanism": mechanism})["error_code"] in {0, 33}
        return made, sink

    def _connected(self, client: Any) -> Connection:
        of = self._service.parts
        service = Service(of.commits, of.fetches, of.admin, client)
        return Connection(service, client, self.security.connections, self.loop)

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
def busy() -> Iterator[threading.Event]:
    """The thread that looks at passwords has to do with something else, until this is set."""
    release = threading.Event()
    login._hashing.submit(release.wait)
    yield release
    release.set()


def test_so_many_passwords_wait_and_no_more(
    logins: Logins, busy: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(login, "MOST_HASHED", 2)
    made = [logins.connect("PLAIN") for _ in range(3)]
    for each, sink in made[:2]:
        logins.send(each, sink, SASL_AUTHENTICATE, plain())
    with caplog.at_level(logging.WARNING):
        refused = logins.ask(*made[2], SASL_AUTHENTICATE, plain())
    assert (refused["error_code"], made[2][1].closed) == (FAILED, True)
    assert caplog.messages == ["192.0.2.1:4711 is not let in: 2 passwords wait to be looked at, as many as may"]
    busy.set()
    assert [logins.answer(sink, SASL_AUTHENTICATE)["error_code"] for _, sink in made[:2]] == [0, 0]
    assert logins.ask(*logins.connect("PLAIN"), SASL_AUTHENTICATE, plain())["error_code"] == 0


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
