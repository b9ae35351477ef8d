"""A limit on the memory of this process while it answers a question."""

import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_GROWTH_BYTES = 750 << 20
"""By how much the process may grow: with what it holds before, its peak stays below 1 GB."""

_INTERVAL_SECONDS = 0.02
_STATM = Path("/proc/self/statm")


@contextmanager
def limited(exit_code: int, explanation: str, clean_up: Callable[[], None]) -> Iterator[None]:
    """End the process in an orderly way if it grows by more than MAX_GROWTH_BYTES meanwhile.

    The engine limits sorts, joins and aggregations itself, but not every window function and no result. Writes
    `explanation` to standard error, calls `clean_up` and leaves with `exit_code`, before the operating system kills the
    process. Does nothing where the system does not tell how large a process is.
    """
    if not _STATM.exists():
        yield
        return
    most, done = _resident() + MAX_GROWTH_BYTES, threading.Event()

    def watch() -> None:
        while not done.wait(_INTERVAL_SECONDS):
            if _resident() > most:
                sys.stderr.write(f"error: {explanation}\n")
                sys.stderr.flush()
                clean_up()
                os._exit(exit_code)

    watcher = threading.Thread(target=watch, daemon=True, name="memory-limit")
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _resident() -> int:
    return int(_STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
