"""How often a group may commit, by a token bucket for each group, whichever connections its commits come from.

A commit over the quota is written and answered with a throttle time, and its connection is muted for as long, as a
broker does (KIP-219). Until the bucket is no longer in debt, the group's other commits are written later, each when a
token is there for it: a new connection brings no new tokens. A commit that would wait too long is refused with an error
that clients retry. By HTTP every commit over the quota is refused.
"""

import heapq
import time
from collections.abc import Callable
from typing import NamedTuple

from offsetlake.util.token_buckets import MAX_NAME_BYTES, Buckets

BURST_SECONDS = 10  # of the rate may come at once: about the window of a broker's quotas
MAX_THROTTLE_MS = 10_000  # no client gives a request up meanwhile
MAX_THROTTLED = 10_000  # groups whose throttled commits are counted


class Throttle(NamedTuple):
    """What a commit has to wait for: `delay_ms` before it is written, `rest_ms` after it is answered.

    `refused` says that the delay would be longer than MAX_THROTTLE_MS; then the commit takes no token.
    """

    delay_ms: int = 0
    rest_ms: int = 0
    refused: bool = False

    @property
    def muted_ms(self) -> int:
        """How long nothing more is read from the connection."""
        return self.delay_ms + self.rest_ms


UNTHROTTLED = Throttle()


class Quota:
    """Commits a second, of each group."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._buckets = Buckets(rate, max(rate * BURST_SECONDS, 1.0), clock)
        self._throttled: dict[bytes, int] = {}
        self.throttled = 0
        """Commits over the quota, of all groups."""

    def take(self, group: bytes) -> Throttle:
        """Take a token for a commit."""
        delay_ms = self._ms(self._buckets.level(group))
        if delay_ms > MAX_THROTTLE_MS:
            self._count(group)
            return Throttle(0, MAX_THROTTLE_MS, refused=True)
        left = self._buckets.take(group)
        if left >= 0:
            return UNTHROTTLED
        self._count(group)
        return Throttle(delay_ms, min(self._ms(left) - delay_ms, MAX_THROTTLE_MS))

    def refusal_ms(self, group: bytes) -> int:
        """Take a token if there is one, else return after how many ms there is."""
        level = self._buckets.level(group)
        if level >= 1:
            self._buckets.take(group)
            return 0
        self._count(group)
        return min(self._ms(level - 1), MAX_THROTTLE_MS)

    def worst(self, number: int) -> list[tuple[bytes, int]]:
        """Give the groups that were throttled most often, and how often, the worst first; none with a long name."""
        return heapq.nlargest(number, self._throttled.items(), key=lambda item: item[1])

    def _ms(self, level: float) -> int:
        """Return after how many ms a level below 0 is 0 again, and at least 1."""
        return 0 if level >= 0 else max(1, int(-level * 1000 / self._rate))

    def _count(self, group: bytes) -> None:
        self.throttled += 1
        if len(group) > MAX_NAME_BYTES:
            return
        if group not in self._throttled and len(self._throttled) >= MAX_THROTTLED:
            self._throttled = dict(self.worst(MAX_THROTTLED // 2))
        self._throttled[group] = self._throttled.get(group, 0) + 1
