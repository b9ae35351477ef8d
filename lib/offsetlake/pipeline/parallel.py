"""Hands pieces of work to Spark's tasks and brings back what they give, errors of ours included."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from pyspark.sql import SparkSession

from offsetlake.errors import OffsetlakeError

_TASKS_A_CORE = 4  # log partitions differ in size: more tasks than cores even that out

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def neighbourhoods(spark: SparkSession | None, partitions: Sequence[int]) -> list[Sequence[int]]:
    """Cut log partitions into pieces of work, neighbours together as files hold them; one piece without Spark."""
    tasks = spark.sparkContext.defaultParallelism * _TASKS_A_CORE if spark else 1
    size = -(-len(partitions) // tasks) or 1
    return [partitions[at : at + size] for at in range(0, len(partitions), size)]


def distribute(spark: SparkSession | None, work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
    """Run `work` on every piece, a task each, as many at a time as Spark has cores; results in the order of the pieces.

    Without Spark all is done here: for work that takes less time than Spark to start.

    An OffsetlakeError of a task is raised here as it is; any other error comes as Spark's, with the task's trace.
    """
    if spark is None or not pieces:
        return [work(piece) for piece in pieces]
    found = spark.sparkContext.parallelize(pieces, len(pieces)).map(partial(_guarded, work)).collect()
    results: list[Result] = []
    for one in found:
        if isinstance(one, OffsetlakeError):
            raise one
        results.append(one)
    return results


def _guarded(work: Callable[[Piece], Result], piece: Piece) -> Result | OffsetlakeError:
    try:
        return work(piece)
    except OffsetlakeError as error:
        return error
