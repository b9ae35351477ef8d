"""How often a group may commit: a bucket of tokens a group. Who is over it is answered, and then not heard for a time.

As a broker's quotas (KIP-219): nothing is refused; the answer says how long the connection is left alone, and it is.
By HTTP nobody is left alone: a commit is refused.
"""

import heapq
import time
from collections.abc import Callable

BURST_SECONDS = 10  # of the rate may come at once: about the window of a broker's quotas
LONGEST_MS = 10_000  # no client gives a request up meanwhile
MOST_GROUPS, MOST_THROTTLED = 100_000, 10_000  # that are kept in mind


class Quota:
    """Commits a second, of each group."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._most = max(rate * BURST_SECONDS, 1.0)
        self._lowest = -rate * LONGEST_MS / 1000
        self._buckets: dict[bytes, tuple[float, float]] = {}  # tokens left, and when that was
        self._throttled: dict[bytes, int] = {}
        self.throttled = 0
        """Commits over the quota, of all groups."""

    def take(self, group: bytes, *, refused: bool = False) -> int:
        """Count a commit; gives for how many ms its connection is to rest, 0 mostly.

        `refused`: one over the quota is, and takes no token: the others of the group do not rest longer for it.
        """
        now = self._clock()
        bucket = self._buckets.get(group)
        if bucket is None:
            if len(self._buckets) >= MOST_GROUPS:
                self._forget(now)
            tokens = self._most - 1
        else:
            tokens = min(self._most, bucket[0] + (now - bucket[1]) * self._rate) - 1
        if tokens >= 0:
            self._buckets[group] = tokens, now
            return 0
        tokens = max(tokens, self._lowest)
        if not refused:
            self._buckets[group] = tokens, now
        self.throttled += 1
        if group not in self._throttled and len(self._throttled) >= MOST_THROTTLED:
            self._throttled = dict(self.worst(MOST_THROTTLED // 2))
        self._throttled[group] = self._throttled.get(group, 0) + 1
        return max(1, int(-tokens * 1000 / self._rate))

    def worst(self, number: int) -> list[tuple[bytes, int]]:
        """Give the groups that were throttled most often, and how often, the worst first."""
        return heapq.nlargest(number, self._throttled.items(), key=lambda item: item[1])

    def _forget(self, now: float) -> None:
        """Forget groups whose buckets are full again; where they are few, all: who is over it is so soon again."""
        buckets = {group: of for group, of in self._buckets.items() if of[0] + (now - of[1]) * self._rate < self._most}
        self._buckets = buckets if len(buckets) < MOST_GROUPS // 2 else {}
