"""Work on a request that is done in steps, so that the requests of other connections are handled in between."""

import asyncio
from collections.abc import Generator
from typing import TypeVar

_Result = TypeVar("_Result")
Steps = Generator[int, None, _Result]
Work = Steps[int]
"""Work on a request that is split into turns, so that other connections have theirs in between.

It yields wherever it can be interrupted: the bytes of memory that it has taken since it last did so. It answers the
request itself, and returns for how many ms nothing more is to be taken of the connection.
"""


class Share:
    """A client's share of the rounds; `end` is where its last write is in the order of the queue."""

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
