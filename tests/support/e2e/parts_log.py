"""A log that a test writes batch by batch, with commits in parts, and the lake that reads it."""

import struct
from itertools import count
from pathlib import Path
from typing import Any

from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, rows
from support.lakes import new_lake
from support.oracle.encoders import offset_key, offset_value
from support.oracle.log_writer import Batch, Record, marker_batch, write_partition

TIME = 1_700_000_000_000
Headers = tuple[tuple[bytes, bytes | None], ...]
Made = tuple[bytes, bytes | None, Headers]  # key, value, headers


def plain(partition: int, committed_offset: int | None, headers: Headers = ()) -> Made:
    """Return a commit of group g and topic t; a tombstone if `committed_offset` is None."""
    value = None if committed_offset is None else offset_value(3, committed_offset, commit_timestamp=TIME)
    return offset_key("g", "t", partition), value, headers


def part(partition: int, committed_offset: int | None, size: int, commit_id: int = 1) -> Made:
    headers = ((b"commit.id", struct.pack(">q", commit_id)), (b"commit.size", struct.pack(">i", size)))
    return plain(partition, committed_offset, headers)


class Log:
    """A log partition that grows batch by batch, one log offset per millisecond, and the lake that reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.batches: list[Batch] = []
        self.lake = new_lake(folder / "lake")

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    def batch(self, *made: Made, **shape: Any) -> "Log":
        records = tuple(
            Record(offset, TIME + offset, *record) for offset, record in zip(count(self.end), made, strict=False)
        )
        self.batches.append(Batch(records=records, **shape))
        return self

    def transaction_ends(self, kind: Any, producer_id: int) -> "Log":
        end = self.end
        self.batches.append(
            marker_batch(kind, offset=end, timestamp=TIME + end, producer_id=producer_id, producer_epoch=0)
        )
        return self

    def read(self) -> dict[int, int]:
        """Ingest and compact; return the committed offsets in `offsets` by partition."""
        write_partition(self.folder / "log", 0, self.batches)
        cycle(InProcess(), self.lake, self.folder / "log")
        return self.offsets()

    def offsets(self) -> dict[int, int]:
        return {row["partition"]: row["committed_offset"] for row in rows(self.lake, "offsets")}

    def pending(self) -> list[tuple[int, int, int | None]]:
        """Return log offset, partition and committed offset of the pending parts."""
        parts = [row for row in rows(self.lake, "pending_offsets") if row["commit_id"] is not None]
        return sorted((row["log_offset"], row["partition"], row["committed_offset"]) for row in parts)

    def groups(self) -> list[str]:
        return [row["group_id"] for row in rows(self.lake, "groups")]
