"""Hands pieces of work to Spark's tasks and brings back what they give, errors of ours included."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from pyspark.sql import SparkSession

from offsetlake.errors import OffsetlakeError

_TASKS_A_CORE = 4  # log partitions differ in size: more tasks than cores even that out

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def neighbourhoods(spark: SparkSession, partitions: Sequence[int]) -> list[Sequence[int]]:
    """Cut log partitions into pieces of work, neighbours together as files hold them."""
    tasks = spark.sparkContext.defaultParallelism * _TASKS_A_CORE
    size = -(-len(partitions) // tasks) or 1
    return [partitions[at : at + size] for at in range(0, len(partitions), size)]


def distribute(spark: SparkSession, work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
    """Run `work` on every piece, a task each, as many at a time as Spark has cores; results in the order of the pieces.

    An OffsetlakeError of a task is raised here as it is; any other error comes as Spark's, with the task's trace.
    """
    if not pieces:
        return []
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
