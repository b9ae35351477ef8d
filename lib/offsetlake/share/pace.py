"""Divides the work on a large request into steps, between which the event loop handles other connections."""

import asyncio

UNITS_PER_STEP = 512
"""The units of work in one step: partitions, or batches of acknowledgements, of a few microseconds each."""

WRITE_UNITS = 15
"""The additional units for a partition whose state is written."""


class Pace:
    """Counts the units of work in a step. State may change whenever it is awaited."""

    def __init__(self) -> None:
        self._left = UNITS_PER_STEP

    async def spend(self, units: int = 1) -> None:
        """Count units of work that were done; end the step if it has enough of them."""
        self._left -= units
        if self._left <= 0:
            self._left = UNITS_PER_STEP
            await asyncio.sleep(0)
