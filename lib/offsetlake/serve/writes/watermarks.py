"""The high watermark of each log partition, and the readers that wait for it to advance."""

import asyncio
from collections.abc import Mapping


class Watermarks:
    """High watermarks: by log partition, the log offset after the last acknowledged record, once the log is loaded."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._waiting: dict[int, set[asyncio.Event]] = {}

    def load(self, ends: Mapping[int, int]) -> None:
        """Set the high watermarks to the log end offsets of the log that was loaded."""
        self._ends |= ends

    def get(self, partition: int) -> int | None:
        """Return the high watermark of a partition, or None until the log is loaded."""
        return self._ends.get(partition)

    def ends(self) -> dict[int, int]:
        """Return all high watermarks."""
        return {**self._ends}

    def advance(self, partition: int, end: int) -> None:
        """Advance a high watermark: all records below `end` are acknowledged."""
        self._ends[partition] = end
        for event in self._waiting.pop(partition, ()):
            event.set()

    async def wait(self, seen: Mapping[int, int], seconds: float) -> None:
        """Wait until the high watermark of one partition exceeds the one in `seen`, or the time has elapsed."""
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
