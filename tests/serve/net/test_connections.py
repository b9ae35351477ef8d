"""How many connections there may be, and that those that say nothing are closed."""

import logging

import pytest

from offsetlake.serve.auth.principals import Client
from offsetlake.serve.net.connections import Connections


class Silent:
    """A connection that says nothing, or does."""

    def __init__(self, *, idle: bool = True) -> None:
        self.idle, self.closed = idle, False

    def close(self) -> None:
        self.closed = True

    def is_idle(self) -> bool:
        return self.idle


def client(address: str) -> Client:
    made = Client()
    made.address = address
    return made


def test_so_many_of_one_address_and_so_many_in_all(caplog: pytest.LogCaptureFixture) -> None:
    of, made = Connections(3, 2), [Silent() for _ in range(8)]
    addresses = ["192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", "::1:4", "192.0.2.2:5", "192.0.2.2:6"]
    with caplog.at_level(logging.WARNING):
        let_in = [of.admit(each, client(address)) for each, address in zip(made, addresses, strict=False)]
    assert let_in == [True, True, False, True, False, False]
    assert (len(of), of.refused) == (3, 3)
    assert caplog.messages == [
        "192.0.2.1:3 is not let in: there are 2 of its address (max_connections_per_address); 1 refused so far"
    ], "once in a while is enough"
    of.pass_on(made[0], made[7])
    for each in (made[7], made[7], made[2]):
        of.discard(each)
    assert len(of) == 2
    assert of.admit(made[6], client("192.0.2.1:9"))
    assert not of.admit(made[0], client("192.0.2.3:9"))


def test_idle_connections_are_closed() -> None:
    of, silent, busy = Connections(3, 3), Silent(), Silent(idle=False)
    for number, each in enumerate((silent, busy)):
        of.admit(each, client(f"192.0.2.1:{number}"))
    of.close_idle()
    assert (silent.closed, busy.closed) == (True, False)
