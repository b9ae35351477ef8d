"""Answers by what they depend on: each is computed once, for all who ask, and kept while there is memory for it."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

MAX_BYTES = 24 << 20  # the packed changes of an offset with a million commits take 11 MB
MAX_WAIT_SECONDS = 0.2
_MAX_AT_ONCE = 2  # each query may use the memory that the engine permits
_MAX_WAITING = 8
_MIN_BYTES = 1_000  # of a key and of what has no size of its own

Key = tuple[object, ...]
T = TypeVar("T")


class AnswerCache:
    """Answers by key, which contains the versions of all that they depend on.

    A function that computes an answer must not request another one, because the threads that compute are few. The
    answers that were used least recently are dropped when all together exceed MAX_BYTES.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: OrderedDict[Key, Future[Any]] = OrderedDict()
        self._sizes: dict[Key, int] = {}
        self._waiting: list[Key] = []
        self._quick: set[Key] = set()  # those that are being computed, or wait for it, other than slow ones
        self._threads = ThreadPoolExecutor(_MAX_AT_ONCE, thread_name_prefix="answer")
        self._slow_thread = ThreadPoolExecutor(1, thread_name_prefix="slow-answer")

    def get(self, key: Key, compute: Callable[[], Any]) -> Any:
        """Return the answer with a key, computed by the function if there is none. Raise what the function raises."""
        return self._future(key, compute, self._threads).result()

    def run(self, compute: Callable[[], T]) -> T:
        """Return the answer of a function that waits for its turn, and whose answer is not kept."""
        return self._threads.submit(compute).result()

    def start(self, key: Key, compute: Callable[[], Any]) -> None:
        """Begin to compute an answer as `later` does, without waiting for it."""
        self._future(key, compute, self._slow_thread)

    def soon(self, key: Key, compute: Callable[[], Any]) -> Any | None:
        """Return the answer as `get`, or None if it takes longer than MAX_WAIT_SECONDS: then it is being computed."""
        return _soon(self._future(key, compute, self._threads))

    def later(self, key: Key, compute: Callable[[], Any]) -> Any | None:
        """Return the answer as `soon`, if it takes many seconds: such answers are computed one after another.

        The newest _MAX_WAITING wait for that.
        """
        return _soon(self._future(key, compute, self._slow_thread))

    def _future(self, key: Key, compute: Callable[[], Any], threads: ThreadPoolExecutor) -> "Future[Any]":
        with self._lock:
            future = self._answers.get(key)
            if future is None:
                future = self._answers[key] = threads.submit(self._compute, key, compute)
                if threads is self._slow_thread:
                    self._waiting = [waiting for waiting in self._waiting if waiting != key] + [key]
                    self._cancel_oldest()
                else:
                    self._quick.add(key)
            self._answers.move_to_end(key)
            return future

    def _cancel_oldest(self) -> None:
        """Cancel answers that may not be needed any more. A page that still needs one requests it again."""
        waiting = [key for key in self._waiting if key in self._answers and not self._answers[key].done()]
        self._waiting = waiting[-_MAX_WAITING:]
        for key in waiting[:-_MAX_WAITING]:
            if self._answers[key].cancel():
                del self._answers[key]

    def _compute(self, key: Key, compute: Callable[[], Any]) -> Any:
        try:
            answer = compute()
        except BaseException:
            with self._lock:
                self._answers.pop(key, None)  # it is computed again for the next who asks
                self._quick.discard(key)
            raise
        with self._lock:
            self._quick.discard(key)
            is_last = not self._quick
            self._sizes[key] = _MIN_BYTES + _bytes(answer)
            for oldest in [*self._answers]:
                if sum(self._sizes.values()) <= MAX_BYTES:
                    break
                if oldest in self._sizes:
                    del self._answers[oldest], self._sizes[oldest]
        if is_last:  # others would request the same memory again
            pa.default_memory_pool().release_unused()
        return answer


def _soon(future: "Future[Any]") -> Any | None:
    with suppress(TimeoutError, CancelledError):
        return future.result(MAX_WAIT_SECONDS)
    return None


def _bytes(answer: Any) -> int:
    """Return about how much memory an answer needs."""
    if isinstance(answer, pa.Table | pa.Array | np.ndarray):
        return int(answer.nbytes)
    if is_dataclass(answer):
        return sum(_bytes(getattr(answer, field.name)) for field in fields(answer))
    if isinstance(answer, Mapping):
        return sum(_bytes(value) for value in answer.values())
    if isinstance(answer, Sequence) and not isinstance(answer, str | bytes):
        return sum(map(_bytes, answer))
    return len(answer) if isinstance(answer, str | bytes) else 100
