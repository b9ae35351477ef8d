"""The log as a Spark source: `spark.read.format("offset_commit_log")`, in Arrow batches.

| option              | is |
|---------------------|----|
| `log`               | a folder laid out as a broker's data folder; or instead |
| `bootstrap.servers` | a live cluster, with Kafka's own names for the security settings |
| `records`           | `offset_commits`, the bulk, or `others`: all else, and what cannot be decoded |
| `ranges`            | JSON {"topic-partition": [start, end]}: the log offsets to read, all where not given |
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from offsetlake.errors import BadRequest
from offsetlake.kafka import offset_commits, other_records
from offsetlake.kafka.batches import CorruptRegion, Records, read_batches
from offsetlake.kafka.superseded import superseded
from offsetlake.log.address import LogAddress, Slice
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition, OffsetRange

FORMAT = "offset_commit_log"
READER_BYTES = 64 << 20  # small slices are read together, up to this many bytes a reader

_LOG_PARTITION = pa.field("log_partition", pa.int32())
_SCHEMAS = {
    "offset_commits": pa.schema([_LOG_PARTITION, *offset_commits.SCHEMA, pa.field("superseded", pa.bool_())]),
    "others": pa.schema([pa.field("log_topic", pa.string()), _LOG_PARTITION, *other_records.SCHEMA]),
}


@dataclass
class SliceGroup(InputPartition):
    """What one reader reads: slices of any partitions, one after the other."""

    slices: list[Slice]


class CommitLogSource(DataSource):
    """Spark's entry to the log; the module says which options it takes."""

    @classmethod
    def name(cls) -> str:
        """Give the name for `spark.read.format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Give the columns of the kind of records asked for."""
        return from_arrow_schema(_SCHEMAS[_records_option(self.options)])

    def reader(self, schema: StructType) -> "CommitLogReader":
        """Build the reader that Spark sends to its tasks."""
        del schema  # columns are pruned by Spark, behind the reader
        return CommitLogReader(dict(self.options))


class CommitLogReader(DataSourceReader):
    """Plans slices on the driver, reads them in tasks."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._kind = _records_option(options)
        self._ranges = options.get("ranges")
        self._address = LogAddress.from_options({k: v for k, v in options.items() if k not in ("records", "ranges")})

    def partitions(self) -> list[SliceGroup]:
        """Plan a task for each piece of work."""
        ranges = self._address.describe().ranges if self._ranges is None else ranges_from_json(self._ranges)
        if self._kind == "offset_commits":
            ranges = {where: offsets for where, offsets in ranges.items() if where.topic == OFFSETS_TOPIC}
        return plan_readers(self._address, ranges) or [SliceGroup([])]

    def read(self, partition: SliceGroup) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """Read one task's slices into Arrow batches of `schema`."""
        decode = offset_commit_rows if self._kind == "offset_commits" else other_rows
        for piece, found in self._address.fetch(partition.slices):
            batch = decode(piece, found)
            if batch.num_rows:
                yield batch


def plan_readers(address: LogAddress, ranges: Mapping[LogPartition, OffsetRange]) -> list[SliceGroup]:
    """Cut ranges into about equal pieces of work: a large partition into several, many small ones into one."""
    return _grouped([piece for where, offsets in ranges.items() for piece in address.slices(where, offsets)])


def ranges_to_json(ranges: Mapping[LogPartition, OffsetRange]) -> str:
    """Write ranges as the option `ranges` wants them."""
    return json.dumps({str(where): list(offsets) for where, offsets in ranges.items()})


def ranges_from_json(text: str) -> dict[LogPartition, OffsetRange]:
    """Read the option `ranges`; BadRequest where it is no such JSON."""
    try:
        named = {name.rpartition("-"): OffsetRange(*map(int, pair)) for name, pair in json.loads(text).items()}
        return {LogPartition(topic, int(partition)): offsets for (topic, _, partition), offsets in named.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise BadRequest(f'ranges must be JSON such as {{"{OFFSETS_TOPIC}-0": [0, 100]}}, not {text!r}') from error


def _records_option(options: Mapping[str, str]) -> str:
    kind = options.get("records", "offset_commits")
    if kind not in _SCHEMAS:
        raise BadRequest(f"option records is {kind!r}: offset_commits or others is known")
    return kind


def _grouped(slices: list[Slice]) -> list[SliceGroup]:
    groups: list[SliceGroup] = []
    room = 0
    for piece in slices:
        if piece.size > room:
            groups.append(SliceGroup([]))
            room = READER_BYTES
        groups[-1].slices.append(piece)
        room -= piece.size
    return groups


def _within(records: Records, offsets: OffsetRange) -> Records:
    inside = (records.log_offset >= offsets.start) & (records.log_offset < offsets.end)
    return records if inside.all() else records.where(inside)


def offset_commit_rows(piece: Slice, found: bytes | CorruptRegion) -> pa.RecordBatch:
    """Decode the offset commits of what `fetch` found.

    Columns: `log_partition`, those of `decode_offset_commits`, and `superseded`.
    """
    where, schema = piece.log_partition, _SCHEMAS["offset_commits"]
    if isinstance(found, CorruptRegion):
        return pa.RecordBatch.from_pylist([], schema=schema)
    records = _within(read_batches(found)[0], piece.offsets)
    chosen = np.isin(records.record_types(), offset_commits.RECORD_TYPES) & ~records.control
    commits = records.where(chosen)
    rows, undecodable = offset_commits.decode_offset_commits(commits)
    good = np.ones(len(commits), np.bool_)
    good[list(undecodable)] = False
    decided = good & ((commits.producer_id == -1) | (commits.value_length < 0))
    marks = pa.array(superseded(commits, decided)[good])
    partition = pa.array(np.full(rows.num_rows, where.partition, np.int32))
    return pa.RecordBatch.from_arrays([partition, *rows.columns, marks], schema=schema)


def other_rows(piece: Slice, found: bytes | CorruptRegion) -> pa.RecordBatch:
    """Decode the rest of it: `log_topic`, `log_partition` and the columns of `decode_others`."""
    where, schema = piece.log_partition, _SCHEMAS["others"]
    if isinstance(found, CorruptRegion):
        rows = other_records.corrupt_rows([found])
    else:
        records, corrupt = read_batches(found)
        # A batch across a slice's start belongs to the slice before: its first offset is there.
        corrupt = [region for region in corrupt if region.log_offset >= piece.offsets.start]
        rows = other_records.decode_others(where.topic, _within(records, piece.offsets), corrupt)
    topic = pa.array([where.topic] * rows.num_rows, pa.string())
    partition = pa.array(np.full(rows.num_rows, where.partition, np.int32))
    return pa.RecordBatch.from_arrays([topic, partition, *rows.columns], schema=schema)
