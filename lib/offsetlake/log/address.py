"""The address of a log, and one way to read logs in folders and in live clusters.

The client of a live cluster is imported when it is needed: it takes 0.2 s.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from offsetlake.errors import BadRequest
from offsetlake.kafka.batches.reader import CorruptRegion
from offsetlake.log.disk import folder, tails
from offsetlake.log.disk.absent_partitions import HEAD_BYTES, groups_in, head
from offsetlake.log.disk.folder import FolderSlice
from offsetlake.log.positions import LOG_TOPICS, OFFSETS_TOPIC, LogExtent, LogPartition, OffsetRange
from offsetlake.log.tails import Tail, TailQuery

if TYPE_CHECKING:
    from offsetlake.log.cluster.connection import KafkaConnection

CLUSTER_SCHEME = "kafka://"  # precedes the bootstrap servers of a live cluster
MAX_SLICE_OFFSETS = 500_000  # of a live partition
HEAD_OFFSETS = 500  # of a live partition, for the groups at its beginning
RECORD_BYTES = 60  # approximate size of a commit in a Fetch response; only the balance between readers depends on it


@dataclass(frozen=True, slots=True)
class TopicSlice:
    """Offsets of a live partition for one reader; `size` is an estimate in bytes."""

    log_partition: LogPartition
    offsets: OffsetRange
    size: int


Slice = FolderSlice | TopicSlice


@dataclass(frozen=True, slots=True)
class LogAddress:
    """The address of a log: either a folder with the layout of a broker's data folder, or a live cluster.

    Raises:
        BadRequest: Both or neither are given.
    """

    folder: Path | None = None
    connection: "KafkaConnection | None" = None

    def __post_init__(self) -> None:
        if (self.folder is None) == (self.connection is None):
            raise BadRequest("Specify one log: --log FOLDER, or --bootstrap HOST:PORT for a live cluster.")

    def __str__(self) -> str:
        return str(self.folder) if self.folder else f"{CLUSTER_SCHEME}{self._live.bootstrap}"

    @property
    def location(self) -> str:
        """Return the address independent of the working directory: an absolute path, or `kafka://HOST:PORT`."""
        return str(self.folder.absolute()) if self.folder else str(self)

    @property
    def _live(self) -> "KafkaConnection":
        assert self.connection is not None  # noqa: S101 - __post_init__ ensures it
        return self.connection

    def describe(self) -> LogExtent:
        """Return what the log contains now (`readiness.repair_after_crash` is called before).

        Raises:
            LogUnavailable: The log cannot be read.
        """
        if not self.folder:
            from offsetlake.log.cluster import topic  # noqa: PLC0415 - as the docstring of the module explains

            return topic.describe(self._live, LOG_TOPICS)
        return folder.describe(self.folder)

    def first_groups(self, extent: LogExtent) -> set[tuple[str, int]]:
        """Return groups at the beginning of partitions of `__consumer_offsets`, with the numbers of these."""
        wanted = {where: offsets for where, offsets in extent.ranges.items() if where.topic == OFFSETS_TOPIC}
        if self.folder:
            heads = ((head(self.folder / str(where)), where) for where in wanted)
            return {(group, where.partition) for data, where in heads for group in groups_in(data)}
        from offsetlake.log.cluster import topic  # noqa: PLC0415

        ranges = [(where, OffsetRange(start, min(end, start + HEAD_OFFSETS))) for where, (start, end) in wanted.items()]
        fetched = topic.fetch(self._live, ranges, HEAD_BYTES)
        return {(group, ranges[number][0].partition) for number, data in fetched for group in groups_in(data)}

    def slices(self, log_partition: LogPartition, offsets: OffsetRange) -> list[Slice]:
        """Split offsets of a partition into slices that can be read in parallel."""
        if self.folder:
            return [*folder.slices(self.folder, log_partition, offsets)]
        starts = range(offsets.start, offsets.end, MAX_SLICE_OFFSETS)
        ranges = [OffsetRange(start, min(start + MAX_SLICE_OFFSETS, offsets.end)) for start in starts]
        return [TopicSlice(log_partition, part, (part.end - part.start) * RECORD_BYTES) for part in ranges]

    def fetch(self, slices: Sequence[Slice]) -> Iterator[tuple[Slice, bytes | CorruptRegion]]:
        """Yield the content of slices in order: chunks of whole batches, and the corrupt regions between them."""
        if self.connection:
            from offsetlake.log.cluster import topic  # noqa: PLC0415

            ranges = [(log_slice.log_partition, log_slice.offsets) for log_slice in slices]
            for number, data in topic.fetch(self.connection, ranges):
                yield slices[number], data
            return
        for log_slice in slices:
            assert isinstance(log_slice, FolderSlice)  # noqa: S101 - `slices` of this log returned it
            for content in folder.fetch(log_slice):
                yield log_slice, content

    def read_tails(self, queries: Sequence[TailQuery]) -> list[Tail]:
        """Return the tail of log partitions before offsets, at most one of each, to know the log again.

        Raises:
            LogUnavailable: The log cannot be read.
        """
        if self.folder:
            return tails.read_tails(self.folder, queries)
        from offsetlake.log.cluster import tails as live_tails  # noqa: PLC0415

        return live_tails.read_tails(self._live, queries) if queries else []

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "LogAddress":
        """Return the address in the options of Spark's data source: `log`, or settings such as `bootstrap.servers`."""
        if "log" in options:
            return cls(folder=Path(options["log"]))
        from offsetlake.log.cluster.connection import KafkaConnection  # noqa: PLC0415

        return cls(connection=KafkaConnection.from_settings(options))
