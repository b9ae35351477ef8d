"""Opens a log for writing, and appends decisions to a log that offsetlake owns."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.kafka.audit.headers import audit_headers
from offsetlake.kafka.batches.writer import Batch, record_batch
from offsetlake.kafka.commits.encoding import offset_commit_value
from offsetlake.kafka.commits.key_columns import offset_keys
from offsetlake.kafka.records.group_tombstones import group_tombstone_keys
from offsetlake.kafka.uuid import ZERO_UUID, uuid_bytes
from offsetlake.log.address import LogAddress
from offsetlake.log.cluster.admin_client import cluster_admin
from offsetlake.log.cluster.share_admin import ShareGroupAdmin
from offsetlake.log.writer.appending import appending
from offsetlake.log.writer.os_users import process_principal
from offsetlake.log.writer.served_log import ServedLog, served
from offsetlake.pipeline.emit.results import Written
from offsetlake.pipeline.emit.share_writer import ShareGroupWriter
from offsetlake.util.row_codes import order_codes
from offsetlake.util.times import now_ms

WHILE_MEMBERS_RAN = "it was set while members of the group ran, whatever they had committed since the plan"
WRITTEN_SINCE = "the group changed while the conditions were checked: run `offsetlake emit` again"


class Log(Protocol):
    """A log that offsetlake owns: an `Appender`, or a `ServedLog`, which returns -1 for batches of changed groups."""

    def end(self, partition: int) -> int:
        """Return the log end offset up to which a log partition must be read before anything is appended."""

    def append(self, partition: int, batches: Sequence[Batch]) -> list[int]:
        """Append batches, and return the log offset of the first record of each."""

    def sync(self) -> None:
        """Return after everything that was appended is on disk."""


class Writer(Protocol):
    """Writes to one log: rows of `decisions.as_writes` with a column `job`, the job that planned them."""

    notes: list[str]
    writes_share_groups: bool

    def end(self, partition: int) -> int:
        """Return the log end offset up to which a log partition must be read before anything is written to it."""

    def write(self, partition: int, writes: pa.Table) -> Written:
        """Write to one log partition; the rows of a group are adjacent."""

    def sync(self) -> None:
        """Return after all writes are durable."""


@contextmanager
def open_writer(log: LogAddress, owner: str) -> Iterator[Writer]:
    """Yield a writer for a log: through its cluster, through the process that serves it, or directly.

    Raises what `ClusterAdmin`, `served` and `appending` raise.
    """
    if log.connection is not None:
        from offsetlake.pipeline.emit.cluster_writer import ClusterWriter  # noqa: PLC0415 - kafka-python takes 10 MB

        with cluster_admin(log.connection) as admin, ShareGroupAdmin(log.connection) as share_offsets:
            yield ClusterWriter(admin, ShareGroupWriter(admin, share_offsets), log)
    elif log.folder is not None:
        with served(log.folder) as job_socket:
            if job_socket is not None:
                yield LogWriter(job_socket, job_socket.principal, owner)
            else:
                with appending(log.folder, owner) as appender:
                    yield LogWriter(appender, process_principal(), owner)


class LogWriter:
    """Appends to a log that offsetlake owns: one atomic record batch per group, with headers for an audit event."""

    writes_share_groups = False

    def __init__(self, log: Log, principal: str, job: str) -> None:
        self._log = log
        self.notes: list[str] = []
        client, host = f"offsetlake {job}".encode(), socket.gethostname()
        self._audit = lru_cache(None)(lambda jobs: audit_headers(jobs, principal, client, host))

    def end(self, partition: int) -> int:
        """Return the log end offset; groups to which another process appends after it are refused by `write`."""
        return self._log.end(partition)

    def write(self, partition: int, writes: pa.Table) -> Written:
        """Append the writes; those of a group with records after `end` are all refused. Raises LogUnavailable."""
        if not writes.num_rows:
            return Written(np.empty(0, np.int64))
        batches, starts = self._batches(writes)
        written = self._log.append(partition, batches)
        return _written(np.array(written), starts, dict.fromkeys(range(len(batches)), WRITTEN_SINCE))

    def rewind(self, partition: int, writes: pa.Table) -> Written:
        """Set offsets of groups with members, which the process that serves the log does for one group at a time.

        Raises:
            LogUnavailable: Whether the offsets of a group are set is unknown.
        """
        assert isinstance(self._log, ServedLog)  # noqa: S101 - otherwise the plan has no such groups
        batches, starts = self._batches(writes)
        results = []
        for batch, row in zip(batches, starts[:-1].tolist(), strict=True):
            results.append(self._log.rewind(writes["group_id"][row].as_py(), partition, batch))
        log_offsets, refusals = zip(*results, strict=True)
        written = _written(np.array(log_offsets), starts, dict(enumerate(refusals)))
        done = np.flatnonzero(written.log_offset >= 0).tolist()
        written.notes.update(dict.fromkeys(done, WHILE_MEMBERS_RAN))
        return written

    def _batches(self, writes: pa.Table) -> tuple[list[Batch], npt.NDArray[np.int64]]:
        """Return a batch for each group, and the row of the first write of each, followed by the number of rows."""
        now, rows = now_ms(), writes.num_rows
        codes = order_codes(writes, ["group_id"])
        starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), rows]
        keys, values, jobs = offset_keys(writes).to_pylist(), _values(writes), writes["job"].to_pylist()
        last = writes.select(["group_id", "group_type"]).take([stop - 1 for stop in starts[1:]]).to_pylist()
        batches = []
        for (first, stop), group in zip(pairwise(starts), last, strict=True):
            records = [*zip(keys[first:stop], values[first:stop], strict=True)]
            if keys[stop - 1] is None:  # the group itself
                records[-1:] = [(key, None) for key in group_tombstone_keys(**group)]
            batches.append(record_batch(now, records, self._audit(", ".join(sorted({*jobs[first:stop]})))))
        return batches, np.array(starts)

    def sync(self) -> None:
        """Flush everything that was appended to disk."""
        self._log.sync()


def _written(batches: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], refusals: Mapping[int, str]) -> Written:
    """Return the results.

    Args:
        batches: The first log offset of each batch, -1 if it was refused.
        starts: The row of the first write of each batch, followed by the number of rows.
        refusals: Why batches were refused, by their number.
    """
    counts = np.diff(starts)
    first = np.repeat(batches, counts)
    log_offset = np.where(first < 0, -1, first + np.arange(len(first)) - np.repeat(starts[:-1], counts))
    of_batch = np.repeat(np.arange(len(batches)), counts)
    refused = {row: refusals[int(of_batch[row])] for row in np.flatnonzero(first < 0).tolist()}
    return Written(log_offset, refused=refused)


def _values(writes: pa.Table) -> list[bytes | None]:
    """Encode the values of commits; tombstones have None."""
    values: list[bytes | None] = [None] * writes.num_rows
    commits = np.flatnonzero(pc.equal(writes["kind"], "commit"))
    for row, write in zip(commits.tolist(), writes.take(commits).to_pylist(), strict=True):
        values[row] = _value(write)
    return values


def _value(write: dict[str, Any]) -> bytes:
    expiry, epoch, topic_id = write["expire_timestamp"], write["leader_epoch"], write["topic_id"]
    return offset_commit_value(
        write["committed_offset"],
        -1 if epoch is None else epoch,
        (write["metadata"] or "").encode(),
        write["commit_timestamp"],
        -1 if expiry is None else expiry,
        uuid_bytes(topic_id) if topic_id else ZERO_UUID,
    )
