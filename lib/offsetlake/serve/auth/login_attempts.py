"""Attempts to log in: passwords are checked one at a time, in turn by address, and failures are limited by address.

A check takes milliseconds, and so many connections could make all others wait. So each address has a queue of its own.
An attempt beyond a limit is not answered at all: SASL_AUTHENTICATION_FAILED (58) would be final for a client, but
one whose connection is closed connects again.
"""

import asyncio
import ipaddress
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from offsetlake.util.token_buckets import Buckets

MAX_WAITING, MAX_WAITING_OF_ADDRESS = 500, 100  # passwords; those behind would wait longer than a login may take
MAX_FAILURES, FAILURES_PER_SECOND = 100, 1.0  # of an address: so many at once, then so many a second
_IPV6_PREFIX = 64  # bits: one client has all addresses of such a network


class TooManyAttempts(Exception):
    """An attempt beyond a limit; the message is for the log."""


class _Check(NamedTuple):
    fits: Callable[[], bool]
    result: "asyncio.Future[bool]"


class Attempts:
    """Attempts to log in, by the address they come from."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._failures = Buckets(FAILURES_PER_SECOND, MAX_FAILURES, clock)
        self._thread = ThreadPoolExecutor(1, "password")  # one: checks take no more of the machine
        self._waiting: dict[bytes, deque[_Check]] = {}  # by address, the one whose turn is next first
        self._under_way = False

    def admit(self, host: str) -> None:
        """Raise TooManyAttempts if an address has failed too often of late."""
        self._admit(_network(host))

    def failed(self, host: str) -> None:
        """Count a failed login."""
        self._failures.take(_network(host))

    def check(self, host: str, fits: Callable[[], bool], loop: asyncio.AbstractEventLoop) -> "asyncio.Future[bool]":
        """Return whether a password fits, once a thread has checked it; one that is cancelled before is not checked.

        Raises TooManyAttempts, also in the future: the address may have failed too often meanwhile.
        """
        address = _network(host)
        self._admit(address)
        queue = self._waiting.get(address, deque())
        if len(queue) >= MAX_WAITING_OF_ADDRESS:
            raise TooManyAttempts(f"{MAX_WAITING_OF_ADDRESS} passwords of its address wait to be checked, the limit")
        if sum(map(len, self._waiting.values())) >= MAX_WAITING:
            raise TooManyAttempts(f"{MAX_WAITING} passwords wait to be checked, the limit")
        result: asyncio.Future[bool] = loop.create_future()
        queue.append(_Check(fits, result))
        self._waiting[address] = queue
        if not self._under_way:
            self._next(loop)
        return result

    def _admit(self, address: bytes) -> None:
        if self._failures.level(address) < 1:
            raise TooManyAttempts(
                f"{MAX_FAILURES} logins of its address failed; one more may each {1 / FAILURES_PER_SECOND:.0f} s"
            )

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin the next check."""
        self._under_way = False
        while self._waiting and not self._under_way:
            address = next(iter(self._waiting))
            queue = self._waiting.pop(address)
            check = queue.popleft()
            if queue:
                self._waiting[address] = queue  # behind all others
            if check.result.done():
                continue
            try:
                self._admit(address)
            except TooManyAttempts as error:
                check.result.set_exception(error)
            else:
                self._under_way = True
                done = loop.run_in_executor(self._thread, check.fits)
                done.add_done_callback(lambda done, check=check: self._checked(check, done, loop))  # type: ignore[misc]

    def _checked(self, check: _Check, done: "asyncio.Future[bool]", loop: asyncio.AbstractEventLoop) -> None:
        try:
            if not check.result.done():
                check.result.set_result(done.result())
        finally:
            self._next(loop)


def _network(host: str) -> bytes:
    """Return what stands for all addresses of one client."""
    if ":" in host:
        host = str(ipaddress.ip_network((host.partition("%")[0], _IPV6_PREFIX), strict=False))
    return host.encode()
