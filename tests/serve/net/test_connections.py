"""The limits of connections, and the closing of idle ones."""

import logging

import pytest

from offsetlake.serve.net.client import Client
from offsetlake.serve.net.connections import Connections


class Silent:
    """A connection that is idle, or not."""

    def __init__(self, *, idle: bool = True) -> None:
        self.idle, self.closed = idle, False

    def close(self) -> None:
        self.closed = True

    def is_idle(self) -> bool:
        return self.idle


def client(address: str) -> Client:
    new = Client()
    new.address = address
    return new


def test_connections_above_a_limit_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    connections, opened = Connections(3, 2), [Silent() for _ in range(8)]
    addresses = ["192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", "::1:4", "192.0.2.2:5", "192.0.2.2:6"]
    with caplog.at_level(logging.WARNING):
        admitted = [
            connections.admit(connection, client(address))
            for connection, address in zip(opened, addresses, strict=False)
        ]
    assert admitted == [True, True, False, True, False, False]
    assert (len(connections), connections.refused) == (3, 3)
    (message,) = caplog.messages
    assert message == (
        "Connection of 192.0.2.1:3 refused: the limit of 2 connections per address (max_connections_per_address) is "
        "reached; 1 connections were refused so far"
    ), "later refusals are not logged for a while"
    connections.pass_on(opened[0], opened[7])
    for connection in (opened[7], opened[7], opened[2]):
        connections.discard(connection)
    assert len(connections) == 2
    assert connections.admit(opened[6], client("192.0.2.1:9"))
    assert not connections.admit(opened[0], client("192.0.2.3:9"))


def test_idle_connections_are_closed() -> None:
    connections, idle, busy = Connections(3, 3), Silent(), Silent(idle=False)
    for number, connection in enumerate((idle, busy)):
        connections.admit(connection, client(f"192.0.2.1:{number}"))
    connections.close_idle()
    assert (idle.closed, busy.closed) == (True, False)
