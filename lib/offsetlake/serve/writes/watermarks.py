"""Up to where each log partition is acknowledged, and who waits for more of it."""

import asyncio
from collections.abc import Mapping


class Watermarks:
    """High watermarks by log partition: the log offset behind what was acknowledged; none until the log is loaded."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._waiting: dict[int, set[asyncio.Event]] = {}

    def load(self, ends: Mapping[int, int]) -> None:
        """Begin with the ends of the log as it was loaded."""
        self._ends |= ends

    def of(self, partition: int) -> int | None:
        """Give the high watermark of a partition; None until the log is loaded."""
        return self._ends.get(partition)

    def rise(self, partition: int, end: int) -> None:
        """Take in that all below `end` is acknowledged."""
        self._ends[partition] = end
        for event in self._waiting.pop(partition, ()):
            event.set()

    async def wait(self, seen: Mapping[int, int], seconds: float) -> None:
        """Return when one of the partitions has more than was seen of it, or the time is over."""
        if any(self._ends[partition] > end for partition, end in seen.items()):
            return
        event = asyncio.Event()
        for partition in seen:
            self._waiting.setdefault(partition, set()).add(event)
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            for partition in seen:
                self._waiting.get(partition, set()).discard(event)
