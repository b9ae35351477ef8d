"""Login attempts: passwords are checked one at a time, the addresses take turns, and each has a limit of failures.

A check takes milliseconds, so many connections of one address could delay all others; therefore each address has its
own queue. An attempt above a limit is not answered: SASL_AUTHENTICATION_FAILED (58) would be final for a client,
whereas a client whose connection is closed connects again.
"""

import asyncio
import ipaddress
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from offsetlake.util.token_buckets import Buckets

MAX_WAITING, MAX_WAITING_OF_ADDRESS = 500, 100
"""Maximum number of passwords that wait to be checked; any more would wait longer than a login may take."""

MAX_FAILURES, FAILURES_PER_SECOND = 100, 1.0
"""Limit of failed logins of an address: a burst, and the rate at which it is replenished."""

_IPV6_PREFIX_BITS = 64  # one client usually controls all addresses of such a network


class TooManyAttempts(Exception):
    """A login attempt above a limit; the message is for the log."""


class _Check(NamedTuple):
    matches: Callable[[], bool]
    result: "asyncio.Future[bool]"


class LoginAttempts:
    """The login attempts of all addresses."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._failures = Buckets(FAILURES_PER_SECOND, MAX_FAILURES, clock)
        self._thread = ThreadPoolExecutor(1, "password")  # one thread, so that checks use at most one core
        self._waiting: dict[bytes, deque[_Check]] = {}  # by address, in the order of their turns
        self._is_checking = False

    def admit(self, host: str) -> None:
        """Raise TooManyAttempts if an address has exceeded its limit of failures."""
        self._admit(_network(host))

    def failed(self, host: str) -> None:
        """Count a failed login."""
        self._failures.take(_network(host))

    def check(self, host: str, matches: Callable[[], bool], loop: asyncio.AbstractEventLoop) -> "asyncio.Future[bool]":
        """Return a future with the result of `matches`, which a thread calls; if it is cancelled, no thread does.

        Raises:
            TooManyAttempts: Too many passwords wait, or the address has exceeded its limit of failures. The future
                raises it too, if the address exceeds its limit while the password waits.

        """
        address = _network(host)
        self._admit(address)
        queue = self._waiting.get(address, deque())
        if len(queue) >= MAX_WAITING_OF_ADDRESS:
            raise TooManyAttempts(f"the limit of {MAX_WAITING_OF_ADDRESS} waiting logins per address is reached")
        if sum(map(len, self._waiting.values())) >= MAX_WAITING:
            raise TooManyAttempts(f"the limit of {MAX_WAITING} waiting logins is reached")
        result: asyncio.Future[bool] = loop.create_future()
        queue.append(_Check(matches, result))
        self._waiting[address] = queue
        if not self._is_checking:
            self._next(loop)
        return result

    def _admit(self, address: bytes) -> None:
        if self._failures.level(address) < 1:
            raise TooManyAttempts(
                f"{MAX_FAILURES} logins from its address failed; it may try again once every "
                f"{1 / FAILURES_PER_SECOND:.0f} s"
            )

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the next check."""
        self._is_checking = False
        while self._waiting and not self._is_checking:
            address = next(iter(self._waiting))
            queue = self._waiting.pop(address)
            check = queue.popleft()
            if queue:
                self._waiting[address] = queue  # after all other addresses
            if check.result.done():
                continue
            try:
                self._admit(address)
            except TooManyAttempts as error:
                check.result.set_exception(error)
            else:
                self._is_checking = True
                done = loop.run_in_executor(self._thread, check.matches)
                done.add_done_callback(lambda done, check=check: self._checked(check, done, loop))  # type: ignore[misc]

    def _checked(self, check: _Check, done: "asyncio.Future[bool]", loop: asyncio.AbstractEventLoop) -> None:
        try:
            if not check.result.done():
                check.result.set_result(done.result())
        finally:
            self._next(loop)


def _network(host: str) -> bytes:
    """Return the key under which an address is counted: an IPv4 address, or an IPv6 network."""
    if ":" in host:
        host = str(ipaddress.ip_network((host.partition("%")[0], _IPV6_PREFIX_BITS), strict=False))
    return host.encode()
