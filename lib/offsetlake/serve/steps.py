"""Work on a request in steps, between which the event loop handles the requests of other connections."""

import asyncio
from collections.abc import Generator
from typing import TypeVar

_Result = TypeVar("_Result")
Steps = Generator[int, None, _Result]
Work = Steps[int]
"""Work on one request, which answers the request itself.

It yields wherever it can be interrupted, each time the bytes of memory that it has allocated since it last yielded. It
returns for how many ms the connection is muted, 0 for not at all.
"""


class Share:
    """The share of one client in the write queue; `end` is the position of its last write in the order of the queue."""

    __slots__ = ("end",)

    def __init__(self) -> None:
        self.end = 0


def complete(steps: Steps[_Result]) -> _Result:
    """Run all steps at once and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result


async def complete_in_turns(steps: Steps[_Result]) -> _Result:
    """Run all steps and return their result; the event loop handles other connections after each step."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result
        await asyncio.sleep(0)
