"""Which log, and the one way to read it: a folder and a live cluster answer the same three questions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from offsetlake.errors import BadRequest
from offsetlake.kafka.batches.reader import CorruptRegion
from offsetlake.log.cluster import topic
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.disk import folder
from offsetlake.log.disk.folder import FolderSlice
from offsetlake.log.positions import LOG_TOPICS, LogExtent, LogPartition, OffsetRange

CLUSTER = "kafka://"  # before the bootstrap servers, where a live cluster is named
TOPIC_SLICE = 500_000  # offsets one reader takes from a live partition
BYTES_A_RECORD = 60  # what a commit takes on the wire, about: only the balance between readers depends on it


@dataclass(frozen=True, slots=True)
class TopicSlice:
    """A stretch of one live partition for one reader; `size` in bytes is an estimate."""

    log_partition: LogPartition
    offsets: OffsetRange
    size: int


Slice = FolderSlice | TopicSlice


@dataclass(frozen=True, slots=True)
class LogAddress:
    """A folder laid out as a broker's data folder, or the connection to a live cluster: exactly one of the two."""

    folder: Path | None = None
    connection: KafkaConnection | None = None

    def __post_init__(self) -> None:
        if (self.folder is None) == (self.connection is None):
            raise BadRequest("name one log: --log FOLDER, or --bootstrap HOST:PORT for a live cluster")

    def __str__(self) -> str:
        return str(self.folder) if self.folder else f"{CLUSTER}{self._live.bootstrap}"

    @property
    def location(self) -> str:
        """Return what identifies the log from any working directory: an absolute path, or `kafka://HOST:PORT`."""
        return str(self.folder.absolute()) if self.folder else str(self)

    @property
    def _live(self) -> KafkaConnection:
        assert self.connection is not None  # noqa: S101 - __post_init__ saw to it
        return self.connection

    def describe(self) -> LogExtent:
        """Say what the log holds now; LogUnavailable where it cannot be read."""
        return folder.describe(self.folder) if self.folder else topic.describe(self._live, LOG_TOPICS)

    def slices(self, log_partition: LogPartition, wanted: OffsetRange) -> list[Slice]:
        """Cut the offsets wanted of a partition into stretches that can be read side by side."""
        if self.folder:
            return [*folder.slices(self.folder, log_partition, wanted)]
        starts = range(wanted.start, wanted.end, TOPIC_SLICE)
        ranges = [OffsetRange(start, min(start + TOPIC_SLICE, wanted.end)) for start in starts]
        return [
            TopicSlice(log_partition, offsets, (offsets.end - offsets.start) * BYTES_A_RECORD) for offsets in ranges
        ]

    def fetch(self, slices: Sequence[Slice]) -> Iterator[tuple[Slice, bytes | CorruptRegion]]:
        """Read slices one after the other: chunks of whole batches, and the bytes between them that are none."""
        if self.connection:
            for number, data in topic.fetch(self.connection, [(each.log_partition, each.offsets) for each in slices]):
                yield slices[number], data
            return
        for piece in slices:
            assert isinstance(piece, FolderSlice)  # noqa: S101 - cut by `slices` of this log
            for found in folder.fetch(piece):
                yield piece, found

    def tail_checksum(self, log_partition: LogPartition, end: int) -> int | None:
        """Give a checksum of the batch ending at `end`; None if it is gone, or the log is live and has a cluster id."""
        return folder.tail_checksum(self.folder, log_partition, end) if self.folder else None

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "LogAddress":
        """Build from `log`, or from Kafka's own setting names such as `bootstrap.servers`."""
        if "log" in options:
            return cls(folder=Path(options["log"]))
        return cls(connection=KafkaConnection.from_settings(options))
