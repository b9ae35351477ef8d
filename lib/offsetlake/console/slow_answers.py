"""Answers that take longer than a page should wait: computed in a thread, once for each version of their tables."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from offsetlake.console.answers import Answers
from offsetlake.lake.lake import Lake

MAX_WAIT_SECONDS = 0.5

T = TypeVar("T")


class SlowAnswer(Generic[T]):
    """The answer of a function of the lake, computed again when one of its tables has changed."""

    def __init__(self, answers: Answers, tables: Sequence[str], compute: Callable[[Lake], T]) -> None:
        self._answers, self._tables, self._compute = answers, tables, compute
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="slow-answer")
        self._versions: tuple[int, ...] = ()
        self._computing: Future[T] | None = None

    def get(self) -> T | None:
        """Return the answer; None if it takes longer than MAX_WAIT_SECONDS. Raise what the function raises."""
        lake = self._answers.open()
        versions = (*lake.versions(*self._tables).values(),)
        with self._lock:
            has_failed = self._computing and self._computing.done() and self._computing.exception()
            if self._computing is None or versions != self._versions or has_failed:
                self._versions, self._computing = versions, self._thread.submit(self._compute, lake)
            computing = self._computing
        try:
            return computing.result(MAX_WAIT_SECONDS)
        except TimeoutError:
            return None
