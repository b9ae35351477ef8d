"""Token buckets by name, all with the same rate; full buckets use no memory."""

import hashlib
import time
from collections.abc import Callable

MAX_NAME_BYTES = 255
"""The maximum length of a name in memory; longer names are replaced by their beginning and a digest."""

MAX_BUCKETS = 100_000
_DIGEST_BYTES = 16


def short_name(name: bytes) -> bytes:
    """Return the name, or a substitute of MAX_NAME_BYTES for a longer one."""
    if len(name) <= MAX_NAME_BYTES:
        return name
    digest = hashlib.blake2b(name, digest_size=_DIGEST_BYTES).hexdigest().encode()
    return name[: MAX_NAME_BYTES - len(digest) - 1] + b"~" + digest


class Buckets:
    """Buckets of at most `capacity` tokens, refilled with `rate` tokens per second."""

    def __init__(self, rate: float, capacity: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._capacity, self._clock = rate, capacity, clock
        self._levels: dict[bytes, tuple[float, float]] = {}  # number of tokens, and the time at which it was valid

    def __len__(self) -> int:
        return len(self._levels)

    def level(self, name: bytes) -> float:
        """Return the number of tokens in a bucket, which is negative after it was overdrawn."""
        level = self._levels.get(short_name(name))
        return self._capacity if level is None else self._refilled(level, self._clock())

    def take(self, name: bytes) -> float:
        """Take a token and return how many remain."""
        name, now = short_name(name), self._clock()
        level = self._levels.get(name)
        if level is None and len(self._levels) >= MAX_BUCKETS:
            self._forget(now)
        remaining = (self._capacity if level is None else self._refilled(level, now)) - 1
        self._levels[name] = remaining, now
        return remaining

    def _refilled(self, level: tuple[float, float], now: float) -> float:
        return min(self._capacity, level[0] + (now - level[1]) * self._rate)

    def _forget(self, now: float) -> None:
        """Remove full buckets, or all if most are not full: a client that exceeds its limit soon does so again."""
        levels = {name: level for name, level in self._levels.items() if self._refilled(level, now) < self._capacity}
        self._levels = levels if len(levels) < MAX_BUCKETS // 2 else {}
