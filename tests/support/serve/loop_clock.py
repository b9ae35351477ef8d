"""The clock of an event loop, which a test sets forward instead of waiting."""

import asyncio


def advance(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Set the clock of an event loop of asyncio forward: timers that are due then run in its next iteration."""
    time = loop.time
    loop.time = lambda: time() + seconds  # type: ignore[method-assign]
