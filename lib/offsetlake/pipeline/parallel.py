"""Execution of the work items of a job, in Spark tasks or in this process."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS_PER_CORE = 4  # log partitions differ in size: more tasks than cores balance the load

Item = TypeVar("Item")
Result = TypeVar("Result")


def concurrent_tasks(spark: "SparkSession | None") -> int:
    """Return the number of tasks that run at the same time: the cores of Spark, or 1 without Spark."""
    if spark is None:
        return 1
    from offsetlake.pipeline import spark_tasks  # noqa: PLC0415 - imports Spark, which few commands need

    return spark_tasks.concurrent_tasks(spark)


def chunk_partitions(spark: "SparkSession | None", partitions: Sequence[int]) -> list[Sequence[int]]:
    """Divide log partitions into equal work items of neighbours, which share files; into one item without Spark."""
    total = len(partitions)
    items = min(concurrent_tasks(spark) * _TASKS_PER_CORE if spark else 1, total)
    return [partitions[total * item // items : total * (item + 1) // items] for item in range(items)]


def distribute(spark: "SparkSession | None", work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Run `work` on every item, one Spark task per item, and return the results in the order of the items.

    Without Spark everything runs in this process, which is faster for work that takes less time than starting Spark.

    Raises the OffsetlakeError that a task raised in its last attempt, with its message; any other failure of a task is
    Spark's own exception, with the task's stack trace.
    """
    if spark is None or not items:
        return [work(item) for item in items]
    from offsetlake.pipeline import spark_tasks  # noqa: PLC0415 - as above

    return spark_tasks.run_tasks(spark, work, items)
