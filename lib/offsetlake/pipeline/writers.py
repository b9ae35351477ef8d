"""The two ways a decision goes out: appended to a log of our own, or done by a live cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.kafka.batch_writer import group_tombstone_keys, record_batch
from offsetlake.kafka.offset_keys import offset_keys
from offsetlake.kafka.records import encode_offset_commit_value
from offsetlake.log.address import LogAddress
from offsetlake.log.admin import Admin
from offsetlake.log.appender import Appender
from offsetlake.log.appending import appending
from offsetlake.ordering import order_codes
from offsetlake.pipeline.cluster_writer import ClusterWriter
from offsetlake.pipeline.written import Written
from offsetlake.times import now_ms

_VERSION, _WITH_TOPIC_ID, _WITH_EXPIRY = 3, 4, 1  # of OffsetCommitValue: the oldest that holds what is to be written


class Writer(Protocol):
    """Does writes, as `decisions.as_writes` gives them, to one log."""

    notes: list[str]

    def end(self, partition: int) -> int:
        """Give the log offset up to which a log partition must have been looked at before anything is written to it."""

    def write(self, partition: int, writes: pa.Table) -> Written:
        """Do writes to one log partition, a group's together."""

    def sync(self) -> None:
        """Return when all is done for good."""


@contextmanager
def open_writer(log: LogAddress, owner: str) -> Iterator[Writer]:
    """Open the way to write to a log; raises what `appending` raises, or `Admin` where the log is a live cluster's."""
    if log.connection is not None:
        with Admin(log.connection) as admin:
            yield ClusterWriter(admin, log)
    elif log.folder is not None:
        with appending(log.folder, owner) as appender:
            yield LogWriter(appender)


class LogWriter:
    """Appends to the embedded log, one record batch a group: all of it is in the log, or nothing."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self.notes: list[str] = []

    def end(self, partition: int) -> int:
        """Give the end of a log partition: nobody else appends to it."""
        return self._appender.end(partition)

    def write(self, partition: int, writes: pa.Table) -> Written:
        """Append; nothing is refused here. LogUnavailable where the disk takes no more."""
        rows = writes.num_rows
        if not rows:
            return Written(np.empty(0, np.int64))
        now = now_ms()
        codes = order_codes(writes, ["group_id"])
        starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), rows]
        keys, values = offset_keys(writes).to_pylist(), _values(writes)
        last = writes.select(["group_id", "group_type"]).take([stop - 1 for stop in starts[1:]]).to_pylist()
        batches = []
        sizes = np.ones(rows, np.int64)
        for (first, stop), of in zip(pairwise(starts), last, strict=True):
            records = [*zip(keys[first:stop], values[first:stop], strict=True)]
            if keys[stop - 1] is None:  # the group itself
                records[-1:] = [(key, None) for key in group_tombstone_keys(**of)]
            sizes[stop - 1] += len(records) - (stop - first)
            batches.append(record_batch(now, records))
        base = self._appender.append(partition, batches)[0]
        return Written(base + np.cumsum(sizes) - sizes)

    def sync(self) -> None:
        """Bring all that was appended to the disk."""
        self._appender.sync()


def _values(writes: pa.Table) -> list[bytes | None]:
    """Encode the values of the commits; those of tombstones are null."""
    values: list[bytes | None] = [None] * writes.num_rows
    commits = np.flatnonzero(pc.equal(writes["kind"], "commit"))
    for at, write in zip(commits.tolist(), writes.take(commits).to_pylist(), strict=True):
        values[at] = _value(write)
    return values


def _value(write: dict[str, Any]) -> bytes:
    expiry, topic_id = write["expire_timestamp"], write["topic_id"]
    return encode_offset_commit_value(
        _WITH_EXPIRY if expiry is not None else _WITH_TOPIC_ID if topic_id else _VERSION,
        write["committed_offset"],
        commit_timestamp=write["commit_timestamp"],
        leader_epoch=-1 if write["leader_epoch"] is None else write["leader_epoch"],
        metadata=write["metadata"] or "",
        expire_timestamp=-1 if expiry is None else expiry,
        topic_id=topic_id,
    )
