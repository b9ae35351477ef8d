"""Work on many acknowledgements in steps, between which other requests can be handled."""

from collections.abc import Generator
from typing import TypeVar

_Result = TypeVar("_Result")
Steps = Generator[int, None, _Result]
"""Work that yields 0 wherever it can be interrupted, and returns its result."""

RANGES_PER_STEP = 256
"""The ranges of offsets that are checked or changed in one step, in some microseconds each."""

TYPES_PER_STEP = 1 << 15
"""The acknowledge types that are checked in one step, in some nanoseconds each."""
