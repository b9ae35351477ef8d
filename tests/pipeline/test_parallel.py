"""Errors of Spark tasks on the driver: those for a user arrive as they were raised, all others with their trace."""

from itertools import pairwise

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from offsetlake.errors import LakeBusy, NotEnoughMemory, OffsetlakeError
from offsetlake.pipeline.parallel import chunk_partitions, distribute

pytestmark = pytest.mark.jvm


def test_results_come_in_the_order_of_the_items_one_task_each(spark: SparkSession) -> None:
    def place(item: str) -> tuple[str, int]:
        from pyspark import TaskContext  # noqa: PLC0415 - of the task's process

        context = TaskContext.get()
        assert context is not None
        return item, context.partitionId()

    items = [f"item {number}" for number in range(7)]
    results = distribute(spark, place, items)
    assert [item for item, _ in results] == items
    assert len({task for _, task in results}) == len(items)
    assert distribute(spark, place, []) == []


@pytest.mark.parametrize(
    "error", [LakeBusy("another job writes to /lake 'é'"), NotEnoughMemory('\n{"two"}\n lines\n' + 9_000 * "long ")]
)
def test_an_error_for_the_user_arrives_as_it_was_raised(spark: SparkSession, error: OffsetlakeError) -> None:
    def fail(item: int) -> int:
        if item == 2:
            raise error
        return item

    with pytest.raises(type(error)) as caught:
        distribute(spark, fail, [1, 2, 3])
    assert (type(caught.value), str(caught.value)) == (type(error), str(error))


def test_any_other_error_arrives_with_its_stack_trace(spark: SparkSession) -> None:
    def fail(item: int) -> float:
        return 1 / item

    with pytest.raises(PythonException, match="ZeroDivisionError: division by zero"):
        distribute(spark, fail, [0])


def test_no_archive_is_read_again_before_the_next_task_of_a_process(spark: SparkSession) -> None:
    def look(_: int) -> tuple[int, float, dict[str, int], int]:
        import gc  # noqa: PLC0415 - of the task's process
        import os  # noqa: PLC0415
        import time  # noqa: PLC0415
        import zipimport  # noqa: PLC0415

        read = {path: id(files) for path, files in zipimport._zip_directory_cache.items()}
        return os.getpid(), time.monotonic(), read, gc.get_freeze_count()

    looks = sorted(distribute(spark, look, range(8)), key=lambda seen: seen[:2])
    later = [(before, after) for before, after in pairwise(looks) if before[0] == after[0]]
    assert later
    assert all(before[2] == after[2] and after[3] for before, after in later)


def test_work_items_cover_all_log_partitions_in_order(spark: SparkSession) -> None:
    assert chunk_partitions(spark, range(3)) == [range(1), range(1, 2), range(2, 3)]
    chunks = chunk_partitions(spark, range(50))
    assert [number for chunk in chunks for number in chunk] == [*range(50)]
    assert max(map(len, chunks)) - min(map(len, chunks)) <= 1
    assert chunk_partitions(spark, []) == chunk_partitions(None, []) == []
    assert chunk_partitions(None, range(50)) == [range(50)]
