"""Limits the memory of this process while it runs a query."""

import ctypes
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_GROWTH_BYTES = 750 << 20
"""The maximum growth of the process, which keeps its peak below 1 GB."""

_INTERVAL_SECONDS = 0.02
_STATM = Path("/proc/self/statm")

_LARGE_BLOCK_BYTES = 1 << 17
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # parameters of mallopt in malloc.h
_ARENAS = 2
_ALLOCATORS = {
    # Arrow's default allocator returns memory to the kernel and requests it again: a snapshot of ten million offsets
    # takes 6 s instead of 2 s with the allocator of the C library.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    # The allocator in delta-rs (jemalloc) keeps freed memory for 10 s, and longer if no query follows. With 0.2 s, the
    # first page of the console over ten million offsets leaves 120 MB less, in the same time.
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:200,muzzy_decay_ms:0",
}


def choose_allocators() -> None:
    """Choose the allocators of Arrow and delta-rs, before either is loaded.

    Child processes inherit the settings. Those of the environment are kept.
    """
    for variable, setting in _ALLOCATORS.items():
        os.environ.setdefault(variable, setting)


def return_large_blocks() -> None:
    """Make the C library return each block of 128 kB or more to the system when it is freed.

    By default it keeps blocks of up to 32 MB, in a heap for each thread, which smaller blocks fragment. Does nothing
    with C libraries other than that of GNU.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in (
            (_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES), (_TRIM_THRESHOLD, _LARGE_BLOCK_BYTES), (_ARENA_MAX, _ARENAS),
        ):  # fmt: skip
            mallopt(parameter, value)


@contextmanager
def limited(
    exit_code: int, explanation: str, clean_up: Callable[[], None], max_growth_bytes: int | None = None
) -> Iterator[None]:
    """Exit in an orderly way if the process grows by more than `max_growth_bytes`, by default MAX_GROWTH_BYTES.

    The query engine limits sorts, joins and aggregations itself, but not results and some window functions. Before the
    operating system kills the process, this writes `explanation` to standard error, calls `clean_up` and exits with
    `exit_code`. It does nothing if the operating system does not report the size of processes.
    """
    if not _STATM.exists():
        yield
        return
    max_bytes, done = _resident_bytes() + (max_growth_bytes or MAX_GROWTH_BYTES), threading.Event()

    def watch() -> None:
        while not done.wait(_INTERVAL_SECONDS):
            if _resident_bytes() > max_bytes:
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


def _resident_bytes() -> int:
    return int(_STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
