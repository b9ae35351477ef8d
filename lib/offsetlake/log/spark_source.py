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
from offsetlake.kafka.batches.reader import CorruptRegion, Records, read_batches
from offsetlake.kafka.chunk import AUDIT_EVENTS, COMMITS, OTHERS, Chunk, decode_chunk
from offsetlake.log.address import LogAddress, Slice
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition, OffsetRange

FORMAT = "offset_commit_log"
READER_BYTES = 64 << 20  # small slices are read together, up to this many bytes a reader

_LOG_PARTITION = pa.field("log_partition", pa.int32())
_SCHEMAS = {
    "offset_commits": pa.schema([_LOG_PARTITION, *COMMITS]),
    "others": pa.schema([pa.field("log_topic", pa.string()), _LOG_PARTITION, *OTHERS]),
}
_AUDIT_EVENTS = pa.schema([_LOG_PARTITION, *AUDIT_EVENTS])


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
        for piece, found in self._address.fetch(partition.slices):
            chunk = decode(piece, found)
            batch = chunk.commits if self._kind == "offset_commits" else chunk.others
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


def decode(piece: Slice, found: bytes | CorruptRegion) -> Chunk:
    """Decode what `fetch` found of a slice.

    `commits` and `audit_events` have `log_partition` before the columns of a chunk, `others` has `log_topic` and
    `log_partition`.
    """
    topic, partition = piece.log_partition
    if isinstance(found, CorruptRegion):
        records, corrupt = read_batches(b"")[0], [found]
    else:
        records, corrupt = read_batches(found)
        # A batch across a slice's start belongs to the slice before: its first offset is there.
        corrupt = [region for region in corrupt if region.log_offset >= piece.offsets.start]
    commits, others, audit_events = chunk = decode_chunk(topic, _within(records, piece.offsets), corrupt)
    partitions = [pa.array(np.full(rows.num_rows, partition, np.int32)) for rows in chunk]
    topics = pa.array([topic] * others.num_rows, pa.string())
    return Chunk(
        pa.RecordBatch.from_arrays([partitions[0], *commits.columns], schema=_SCHEMAS["offset_commits"]),
        pa.RecordBatch.from_arrays([topics, partitions[1], *others.columns], schema=_SCHEMAS["others"]),
        pa.RecordBatch.from_arrays([partitions[2], *audit_events.columns], schema=_AUDIT_EVENTS),
    )
