"""Writes to a log that another process owns, through its job socket (`append_protocol`)."""

import json
import socket
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from offsetlake.errors import LogBusy, LogUnavailable
from offsetlake.kafka.batches.writer import Batch
from offsetlake.log.writer import append_protocol
from offsetlake.log.writer.append_protocol import JobRequest, JobStatus

TIMEOUT_SECONDS = 300.0  # for a response: the disk of the owner may be slow, and CUT waits for a snapshot
REQUEST_BYTES = 32 << 10  # of batches in one request, which occupies the owner for some milliseconds
_STILL_PLANNED = "Planned tombstones that were not written stay planned. Run the command again."
_UNKNOWN_REWIND = (
    "All of the offsets of the group are set, or none: when the server runs again, list the offsets with `offsetlake "
    "offsets`, and what was set with `offsetlake audit-events`."
)


class ServedLog:
    """Appends like an `Appender`, but skips groups that were written to since `end` was called.

    `principal` is the principal of this process according to the owner of the log.
    """

    def __init__(self, folder: Path, connection: socket.socket) -> None:
        self._folder, self._connection = folder, connection
        self._responses = connection.makefile("rb")
        self._ends: dict[int, int] = {}
        self.principal = self._send(
            JobRequest.HELLO, append_protocol.HELLO_FIELDS.pack(append_protocol.VERSION)
        ).decode()

    def end(self, partition: int) -> int:
        """Return the log end offset of a partition; the caller must read the log up to it before it appends."""
        (end,) = append_protocol.LOG_OFFSET.unpack(
            self._send(JobRequest.END, append_protocol.END_FIELDS.pack(partition))
        )
        self._ends[partition] = end
        return int(end)

    def append(self, partition: int, batches: Sequence[Batch]) -> list[int]:
        """Append batches, each with records of one group, and return the log offset of the first record of each.

        The offset is WRITTEN_SINCE (-1) for a batch that was not appended, because records of its group were written
        after `end` was called.

        Raises:
            LogUnavailable: Whether the batches are in the log is unknown.
        """
        fields = append_protocol.APPEND_FIELDS.pack(partition, self._ends[partition])
        first_offsets: list[int] = []
        for chunk in _chunks(batches):
            sized = (part for batch in chunk for part in (append_protocol.SIZE.pack(len(batch.data)), batch.data))
            response = self._send(JobRequest.APPEND, fields, *sized)
            first_offsets += (offset for (offset,) in append_protocol.LOG_OFFSET.iter_unpack(response))
        return first_offsets

    def sync(self) -> None:
        """Bring everything that was appended to the disk.

        Raises:
            LogUnavailable: An fsync failed.
        """
        self._send(JobRequest.SYNC)

    def cut(self, lake: str, partition: int, needed: int) -> tuple[int, int]:
        """Delete the segments that end at or before log offset `needed`, and return their number and size in bytes."""
        fields = append_protocol.CUT_FIELDS.pack(partition, needed), lake.encode()
        segments, size = append_protocol.CUT_ANSWER.unpack(self._send(JobRequest.CUT, *fields))
        return int(segments), int(size)

    def topic_ends(self, topics: Collection[str]) -> dict[str, list[list[int] | None]]:
        """Return the log start and end offsets of topics of the cluster whose node owns the log, by partition."""
        response = self._send(JobRequest.TOPIC_ENDS, json.dumps(sorted(topics)).encode(), consequence="")
        ends: dict[str, list[list[int] | None]] = json.loads(response)
        return ends

    def rewind_limit_ms(self, group_id: str) -> int | None:
        """Return how long `rewind` waits for members of a group at most; None if the group has no members."""
        (limit_ms,) = append_protocol.LOG_OFFSET.unpack(self._send(JobRequest.REWIND_LIMIT, group_id.encode()))
        return None if limit_ms < 0 else int(limit_ms)

    def rewind(self, group_id: str, partition: int, batch: Batch) -> tuple[int, str]:
        """Set offsets of a group while its members run.

        Returns:
            The log offset of the first offset, or -1 and why the offsets were not set.

        Raises:
            LogUnavailable: Whether the offsets are set is unknown.
        """
        limit_ms = self.rewind_limit_ms(group_id) or 0
        self._connection.settimeout(TIMEOUT_SECONDS + limit_ms / 1000)
        response = self._send(
            JobRequest.REWIND, append_protocol.END_FIELDS.pack(partition), batch.data, consequence=_UNKNOWN_REWIND
        )
        self._connection.settimeout(TIMEOUT_SECONDS)
        (log_offset,) = append_protocol.LOG_OFFSET.unpack_from(response)
        return int(log_offset), response[append_protocol.LOG_OFFSET.size :].decode()

    def close(self) -> None:
        """Close the connection."""
        self._responses.close()
        self._connection.close()

    def _send(self, request: JobRequest, *fields: bytes | bytearray, consequence: str = _STILL_PLANNED) -> bytes:
        """Send a request and return the fields of the response.

        Raises:
            LogBusy: The owner is still loading the log.
            LogUnavailable: The request failed, or the owner does not answer.
        """
        try:
            self._connection.sendall(append_protocol.frame(request, *fields))
            response = self._read(*append_protocol.SIZE.unpack(self._read(append_protocol.SIZE.size)))
        except (OSError, EOFError) as error:
            raise LogUnavailable(
                f"The server that owns the log {self._folder} does not answer: {error}. {consequence}"
            ) from error
        if response[0] == JobStatus.DONE:
            return response[1:]
        message = response[1:].decode()
        raise LogBusy(message) if response[0] == JobStatus.BUSY else LogUnavailable(message)

    def _read(self, size: int) -> bytes:
        data = self._responses.read(size)
        if len(data) < size:
            raise EOFError("it closed the connection")
        return data


def _chunks(batches: Sequence[Batch]) -> Iterator[list[Batch]]:
    """Split batches into chunks of at most REQUEST_BYTES, or one larger batch."""
    chunk: list[Batch] = []
    size = 0
    for batch in batches:
        if chunk and size + len(batch.data) > REQUEST_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(batch)
        size += len(batch.data)
    if chunk:
        yield chunk


@contextmanager
def served(folder: Path) -> Iterator[ServedLog | None]:
    """Connect to the job socket of the log in a folder; yield None if no process serves the log.

    Raises:
        LogBusy: The server is still loading the log.
        LogUnavailable: The job socket cannot be used.
    """
    connection = _connected(folder)
    if connection is None:
        yield None
        return
    with connection:
        log = ServedLog(folder, connection)
        try:
            yield log
        finally:
            log.close()


def _connected(folder: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(TIMEOUT_SECONDS)
    try:
        with append_protocol.address_of(folder) as address:
            connection.connect(address)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):  # no socket, or one of a killed process
        connection.close()
        return None
    except OSError as error:
        connection.close()
        raise LogUnavailable(
            f"The job socket {folder}/{append_protocol.SOCKET} of the server that owns the log cannot be used: "
            f"{error.strerror}."
        ) from error
    return connection
