"""Token buckets by name: each is refilled at one rate, and those that are full again take no memory."""

import hashlib
import time
from collections.abc import Callable

MAX_NAME_BYTES = 255
"""Of a name that is kept in memory; of a longer one the beginning and a digest are."""

MAX_BUCKETS = 100_000
_DIGEST_BYTES = 16


def short_name(name: bytes) -> bytes:
    """Return a name of at most MAX_NAME_BYTES that stands for a name of any length."""
    if len(name) <= MAX_NAME_BYTES:
        return name
    digest = hashlib.blake2b(name, digest_size=_DIGEST_BYTES).hexdigest().encode()
    return name[: MAX_NAME_BYTES - len(digest) - 1] + b"~" + digest


class Buckets:
    """Buckets of at most `capacity` tokens, refilled by `rate` tokens a second."""

    def __init__(self, rate: float, capacity: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._capacity, self._clock = rate, capacity, clock
        self._levels: dict[bytes, tuple[float, float]] = {}  # tokens, and when that was

    def __len__(self) -> int:
        return len(self._levels)

    def level(self, name: bytes) -> float:
        """Return how many tokens a bucket holds; below 0 it is in debt."""
        level = self._levels.get(short_name(name))
        return self._capacity if level is None else self._refilled(level, self._clock())

    def take(self, name: bytes) -> float:
        """Take one token, and return how many are left."""
        name, now = short_name(name), self._clock()
        level = self._levels.get(name)
        if level is None and len(self._levels) >= MAX_BUCKETS:
            self._forget(now)
        left = (self._capacity if level is None else self._refilled(level, now)) - 1
        self._levels[name] = left, now
        return left

    def _refilled(self, level: tuple[float, float], now: float) -> float:
        return min(self._capacity, level[0] + (now - level[1]) * self._rate)

    def _forget(self, now: float) -> None:
        """Forget full buckets, and all if most are not full: whoever is over a limit soon is again."""
        levels = {name: level for name, level in self._levels.items() if self._refilled(level, now) < self._capacity}
        self._levels = levels if len(levels) < MAX_BUCKETS // 2 else {}
