"""Busy polling: only while requests follow responses at once, and never for longer than its limit."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pytest

from offsetlake.serve.net.busy_polling import MAX_POLL_SECONDS, BusyPolling

if TYPE_CHECKING:
    import asyncio

SOON, LATE = MAX_POLL_SECONDS / 10, MAX_POLL_SECONDS * 2


class Time:
    """A clock, and an event loop each of whose iterations takes a tenth of the limit."""

    def __init__(self) -> None:
        self.now = 100.0
        self.scheduled: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.scheduled.append(callback)

    def clock(self) -> float:
        return self.now

    def iterate(self) -> None:
        scheduled, self.scheduled = self.scheduled, []
        for callback in scheduled:
            callback()
        self.now += SOON

    def iterations(self) -> int:
        """Run the loop until it would sleep; return the number of its iterations."""
        number = 0
        while self.scheduled:
            self.iterate()
            number += 1
        return number


def polling(time: Time, cpus: int = 2) -> BusyPolling:
    return BusyPolling(cast("asyncio.AbstractEventLoop", time), time.clock, cpus)


def exchange(polls: BusyPolling, time: Time, pause: float) -> None:
    """Send a response, and receive the next request after a pause; the event loop sleeps meanwhile."""
    polls.responded()
    time.scheduled.clear()
    time.now += pause
    polls.received()


def test_the_loop_does_not_sleep_after_a_response_if_the_last_request_followed_at_once() -> None:
    time = Time()
    polls = polling(time)
    polls.received()
    polls.responded()
    assert not time.scheduled  # nothing is known about the client yet
    time.now += SOON
    polls.received()
    polls.responded()
    assert 1 < time.iterations() <= 12
    polls.received()  # after the limit
    polls.responded()
    assert not time.scheduled


def test_polling_ends_with_the_next_request_and_begins_again_with_its_response() -> None:
    time = Time()
    polls = polling(time)
    exchange(polls, time, SOON)
    for _ in range(3):
        polls.responded()
        polls.responded()  # of another connection
        assert len(time.scheduled) == 1
        time.iterate()
        polls.received()
        assert time.iterations() == 1


@pytest.mark.parametrize(("pause", "cpus"), [(LATE, 2), (SOON, 1)])
def test_no_polling_after_a_pause_or_without_a_cpu_for_the_client(pause: float, cpus: int) -> None:
    time = Time()
    polls = polling(time, cpus)
    exchange(polls, time, pause)
    polls.responded()
    assert not time.scheduled
