"""The log as a Spark data source: `spark.read.format("offset_commit_log")`, in Arrow batches.

| Option              | Description |
|---------------------|-------------|
| `log`               | a folder with the layout of a broker's data folder; not together with `bootstrap.servers` |
| `bootstrap.servers` | a live cluster, with Kafka's own names for the security settings |
| `records`           | `offset_commits`, or `others`: all other records, and those that cannot be decoded |
| `ranges`            | JSON {"topic-partition": [start, end]}: the log offsets to read; by default all |
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from offsetlake.errors import BadRequest
from offsetlake.log.address import LogAddress
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition, OffsetRange
from offsetlake.log.readiness import repair_after_crash
from offsetlake.log.reading import COMMITS_SCHEMA, OTHERS_SCHEMA, SliceGroup, decode, plan_readers, ranges_from_json

FORMAT = "offset_commit_log"

_SCHEMAS = {"offset_commits": COMMITS_SCHEMA, "others": OTHERS_SCHEMA}


class CommitLogSource(DataSource):
    """The data source as Spark knows it; the docstring of the module describes its options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the kind of records that the options name."""
        return from_arrow_schema(_SCHEMAS[_records_option(self.options)])

    def reader(self, schema: StructType) -> "CommitLogReader":
        """Return the reader that Spark sends to its tasks."""
        del schema  # columns are pruned by Spark, after the reader
        return CommitLogReader(dict(self.options))


class CommitLogReader(DataSourceReader):
    """Plans slices on the driver and reads them in tasks."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._kind = _records_option(options)
        self._ranges = options.get("ranges")
        self._address = LogAddress.from_options({k: v for k, v in options.items() if k not in ("records", "ranges")})

    def partitions(self) -> list[InputPartition]:
        """Return one partition per group of slices."""
        ranges = _all_ranges(self._address) if self._ranges is None else ranges_from_json(self._ranges)
        if self._kind == "offset_commits":
            ranges = {where: offsets for where, offsets in ranges.items() if where.topic == OFFSETS_TOPIC}
        return [InputPartition(group) for group in plan_readers(self._address, ranges) or [SliceGroup([])]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the slices of one partition into Arrow batches of `schema`."""
        for piece, found in self._address.fetch(partition.value.slices):
            chunk = decode(piece, found)
            batch = chunk.commits if self._kind == "offset_commits" else chunk.others
            if batch.num_rows:
                yield batch


def _all_ranges(log: LogAddress) -> Mapping[LogPartition, OffsetRange]:
    repair_after_crash(log)
    return log.describe().ranges


def _records_option(options: Mapping[str, str]) -> str:
    kind = options.get("records", "offset_commits")
    if kind not in _SCHEMAS:
        raise BadRequest(f"option records is {kind!r}: offset_commits or others is known")
    return kind
