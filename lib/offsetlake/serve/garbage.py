"""Garbage collection of the serving process."""

import gc
from collections.abc import Coroutine


async def without_collections(load: Coroutine[None, None, None]) -> None:
    """Run `load` without garbage collections, and exclude what it has loaded from all later ones.

    A full collection stops the event loop for a time that grows with the members and the share partitions. Reference
    counting still frees what was loaded when it is replaced.
    """
    gc.disable()
    try:
        await load
        gc.freeze()
    finally:
        gc.enable()
