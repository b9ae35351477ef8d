"""A serving process whose clocks a test sets forward: the seconds that are added to them are in a mapped file.

    python -m support.serve.controlled_clock CLOCK SETTINGS

The clients of object stores do not use these clocks: their retries, which take up to a minute, are switched off.
"""

import asyncio
import mmap
import struct
import sys
import time
from pathlib import Path
from typing import Any

from offsetlake.cli.serve_process import main
from offsetlake.lake.location import object_store

_POLL_SECONDS = 0.005
_SECONDS = struct.Struct("=d")


class ControlledClock:
    """The seconds by which the clocks of a process differ from those of this machine, in a file."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(_SECONDS.pack(0.0))
        with file.open("r+b") as opened:
            self._mapped = mmap.mmap(opened.fileno(), _SECONDS.size)
        self.program = ("-m", "support.serve.controlled_clock", str(file))

    @property
    def seconds(self) -> float:
        """The seconds that have been added."""
        return float(_SECONDS.unpack(self._mapped[:])[0])

    def advance(self, seconds: float) -> None:
        """Add seconds; whatever waits in the process and is due then continues."""
        self._mapped[:] = _SECONDS.pack(self.seconds + seconds)

    def replace_clocks(self) -> None:
        """Make the clocks and the sleeping coroutines of this process follow the file."""
        monotonic, time_ns, now = time.monotonic, time.time_ns, time.time
        time.monotonic = lambda: monotonic() + self.seconds
        time.time = lambda: now() + self.seconds
        time.time_ns = lambda: time_ns() + int(self.seconds * 1e9)
        sleep = asyncio.sleep

        async def follow(seconds: float, result: Any = None) -> Any:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                await sleep(min(seconds, _POLL_SECONDS))
            return await sleep(0, result)

        asyncio.sleep = follow  # type: ignore[assignment]


if __name__ == "__main__":
    ControlledClock(Path(sys.argv.pop(1))).replace_clocks()
    object_store.RETRIES = {"max_retries": 0}
    sys.exit(main())
