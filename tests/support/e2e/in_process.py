"""A substitute for Spark without a JVM: the work items of a job run in this process, one after the other."""

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from pyspark.errors import PythonException

from offsetlake.pipeline.spark_tasks import TaskFailedError

Batches = Iterable[pa.RecordBatch]


class InProcess:
    """The part of a SparkSession that the jobs use."""

    defaultParallelism = 1  # noqa: N815 - Spark's name

    @property
    def sparkContext(self) -> "InProcess":  # noqa: N802 - Spark's name
        return self

    def createDataFrame(self, rows: pa.Table) -> "InProcessFrame":  # noqa: N802 - Spark's name
        return InProcessFrame([rows])


class InProcessFrame:
    """The part of a DataFrame that the jobs use."""

    def __init__(self, partitions: list[pa.Table], function: Callable[[Batches], Batches] = list) -> None:
        self._partitions, self._function = partitions, function

    def repartitionById(self, number: int, column: str) -> "InProcessFrame":  # noqa: N802 - Spark's name
        (rows,) = self._partitions
        indices = [rows[column].to_pylist().index(partition) for partition in range(number)]
        return InProcessFrame([rows.slice(index, 1) for index in indices])

    def mapInArrow(self, function: Callable[[Batches], Batches], _schema: str) -> "InProcessFrame":  # noqa: N802
        return InProcessFrame(self._partitions, function)

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        try:
            return pa.Table.from_batches(
                batch for rows in self._partitions for batch in self._function(rows.to_batches())
            )
        except TaskFailedError as error:  # Spark keeps only the text of an exception
            raise PythonException(message=f"TaskFailedError: {error}\n") from None


class NoSpark(InProcess):
    """A substitute for LazySession."""

    seconds = 0.0

    def __init__(self, *_arguments: Any) -> None:
        pass

    def __enter__(self) -> "NoSpark":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def __call__(self) -> "NoSpark":
        return self
