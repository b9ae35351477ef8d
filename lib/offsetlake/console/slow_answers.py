"""Answers about a whole lake that take longer than a page should wait."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from offsetlake.console.answers import Answers
from offsetlake.lake.lake import Lake

T = TypeVar("T")


class SlowAnswer(Generic[T]):
    """The answer of a function of the lake, computed again when one of its tables has changed."""

    def __init__(self, answers: Answers, tables: Sequence[str], compute: Callable[[Lake], T]) -> None:
        self._answers, self._tables, self._compute = answers, tables, compute

    def get(self) -> T | None:
        """Return the answer; None if it is still being computed. Raise what the function raises."""
        lake = self._answers.open()
        key = (id(self), *lake.versions(*self._tables).values())
        found: T | None = self._answers.cache.later(key, lambda: self._compute(lake))
        return found
