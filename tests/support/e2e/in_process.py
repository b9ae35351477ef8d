"""What stands for Spark where no JVM is wanted: the pieces of a job run here, one after the other."""

from collections.abc import Callable, Iterable
from typing import Any


class InProcess:
    """The little of a SparkSession that the jobs use."""

    defaultParallelism = 1  # noqa: N815 - Spark's name

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._items = list(items)

    @property
    def sparkContext(self) -> "InProcess":  # noqa: N802 - Spark's name
        return self

    def parallelize(self, pieces: Iterable[Any], _tasks: int) -> "InProcess":
        return InProcess(pieces)

    def map(self, work: Callable[[Any], Any]) -> "InProcess":
        return InProcess(map(work, self._items))

    def collect(self) -> list[Any]:
        return self._items


class NoSpark(InProcess):
    """In the place of a LazySession."""

    seconds = 0.0

    def __init__(self, *_arguments: Any) -> None:
        super().__init__()

    def __enter__(self) -> "NoSpark":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def __call__(self) -> "NoSpark":
        return self
