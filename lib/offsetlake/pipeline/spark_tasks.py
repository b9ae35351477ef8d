"""Execution of work items as Spark tasks: the part of `distribute` that imports Spark.

Only the DataFrame API is used, so a job runs on a classic session and on Spark Connect alike. A failed task raises its
error: Spark then retries it (`spark.task.maxFailures`), and only the result of the successful attempt is returned.
"""

import gc
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, TypeVar
from zipimport import zipimporter

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.serializers import CPickleSerializer
from pyspark.sql import SparkSession, is_remote
from pyspark.sql import functions as F

from offsetlake.errors import OffsetlakeError

_MAX_CORES = 1 << 16

_ITEM, _CONTENT = "item", "content"
_SCHEMA = pa.schema([pa.field(_ITEM, pa.int32(), nullable=False), pa.field(_CONTENT, pa.binary(), nullable=False)])
_SPARK_SCHEMA = f"{_ITEM} int, {_CONTENT} binary"
_ENVELOPE = re.compile(r'offsetlake task error (\{"error": .*\})')

_serializer: Any = CPickleSerializer()

Item = TypeVar("Item")
Result = TypeVar("Result")


class TaskFailedError(Exception):
    """Carries an OffsetlakeError from a task to the driver.

    Spark reports the exception of a Python worker as text, so the message is one line of JSON that `run_tasks` parses.
    """

    def __init__(self, error: OffsetlakeError) -> None:
        content = json.dumps({"error": type(error).__name__, "message": str(error)})
        super().__init__(f"offsetlake task error {content}")


def concurrent_tasks(spark: SparkSession) -> int:
    """Return the number of tasks that Spark runs at the same time."""
    if not is_remote():
        return spark.sparkContext.defaultParallelism
    # A Connect client has no SparkContext; a range has as many partitions as its server has cores.
    numbers = spark.range(_MAX_CORES).select(F.spark_partition_id().alias("number"))
    return int(numbers.agg(F.max("number")).toArrow()[0][0].as_py()) + 1


def run_tasks(spark: SparkSession, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Run `work` on every item, one task per item; see `distribute` for the result and the errors."""
    numbers = pa.array(range(len(items)), pa.int32())
    contents = pa.array([_serializer.dumps(item) for item in items], pa.binary())
    rows = spark.createDataFrame(pa.table([numbers, contents], schema=_SCHEMA))
    tasks = rows.repartitionById(len(items), _ITEM).mapInArrow(partial(_run_items, work), _SPARK_SCHEMA)
    try:
        results = tasks.toArrow()
    except PySparkException as failure:
        if (error := _task_error(failure)) is None:
            raise
        raise error from failure
    return [_serializer.loads(content.as_py()) for content in results.sort_by(_ITEM)[_CONTENT]]


def _run_items(work: Callable[[Item], Result], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run `work` on the single item of a task."""
    for batch in batches:
        for number, content in zip(batch[_ITEM], batch[_CONTENT], strict=True):
            try:
                result = work(_serializer.loads(content.as_py()))
            except OffsetlakeError as error:
                raise TaskFailedError(error) from error
            columns = [pa.array([number.as_py()], pa.int32()), pa.array([_serializer.dumps(result)], pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
    _spare_next_task()


def _spare_next_task() -> None:
    """Spare the next task of this Python process what Spark does between two tasks: 0.25 s of CPU.

    Spark has all importers invalidate their caches. Until Python 3.12, those of Spark's archives would read the
    directories again; without an importer, the next import makes one from Python's cache of directories. Spark also
    collects garbage, for which Python would visit everything that was imported.
    """
    for path, importer in [*sys.path_importer_cache.items()]:
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]
    _exempt_imported()


@cache
def _exempt_imported() -> None:
    """Exempt what exists now from garbage collection; only once, because garbage would be exempt too."""
    gc.freeze()


def _task_error(failure: PySparkException) -> OffsetlakeError | None:
    """Return the error that a TaskFailedError carried through Spark; None for any other failure."""
    envelope = _ENVELOPE.search(str(failure))
    if envelope is None:
        return None
    content = json.loads(envelope[1])
    kinds = {kind.__name__: kind for kind in OffsetlakeError.__subclasses__()}
    return kinds.get(content["error"], OffsetlakeError)(content["message"])
