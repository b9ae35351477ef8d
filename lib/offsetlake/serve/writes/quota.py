"""The quota of commits per group: a token bucket for each group, whichever connections its commits use.

A commit over the quota is written and answered with a throttle time, and its connection is muted for that time, as
brokers do (KIP-219). While the bucket is in debt, further commits of the group are delayed until a token is available:
a new connection gives no new tokens. A commit that would be delayed too long is refused with an error that clients
retry. A commit over HTTP that exceeds the quota is always refused.
"""

import heapq
import time
from collections.abc import Callable
from typing import NamedTuple

from offsetlake.util.token_buckets import MAX_NAME_BYTES, Buckets

BURST_SECONDS = 10
"""A burst of that many seconds of the rate is allowed, about the window of a broker's quotas."""

MAX_THROTTLE_MS = 10_000
"""Less than the request timeout of clients."""

MAX_COUNTED_GROUPS = 10_000
"""Groups whose throttled commits are counted."""


class Throttle(NamedTuple):
    """How a commit is throttled: by `delay_ms` before it is written and by `throttle_ms` after it is answered.

    A commit whose delay would exceed MAX_THROTTLE_MS is `refused` and takes no token.
    """

    delay_ms: int = 0
    throttle_ms: int = 0
    refused: bool = False

    @property
    def muted_ms(self) -> int:
        """How long the connection is muted: no request is read from it."""
        return self.delay_ms + self.throttle_ms


UNTHROTTLED = Throttle()


class Quota:
    """The quota in commits per second and group."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._buckets = Buckets(rate, max(rate * BURST_SECONDS, 1.0), clock)
        self._throttled: dict[bytes, int] = {}
        self.throttled = 0
        """The number of commits over the quota, of all groups."""

    def take(self, group: bytes) -> Throttle:
        """Take a token for a commit, and return how the commit is throttled."""
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
        """Take a token and return 0, or return after how many ms a token will be available."""
        level = self._buckets.level(group)
        if level >= 1:
            self._buckets.take(group)
            return 0
        self._count(group)
        return min(self._ms(level - 1), MAX_THROTTLE_MS)

    def most_throttled(self, number: int) -> list[tuple[bytes, int]]:
        """Return the groups that were throttled most often, with the counts, in descending order.

        Groups whose name exceeds MAX_NAME_BYTES are not included.
        """
        return heapq.nlargest(number, self._throttled.items(), key=lambda item: item[1])

    def _ms(self, level: float) -> int:
        """Return after how many ms a negative level is 0 again, at least 1; 0 for other levels."""
        return 0 if level >= 0 else max(1, int(-level * 1000 / self._rate))

    def _count(self, group: bytes) -> None:
        self.throttled += 1
        if len(group) > MAX_NAME_BYTES:
            return
        if group not in self._throttled and len(self._throttled) >= MAX_COUNTED_GROUPS:
            self._throttled = dict(self.most_throttled(MAX_COUNTED_GROUPS // 2))
        self._throttled[group] = self._throttled.get(group, 0) + 1
