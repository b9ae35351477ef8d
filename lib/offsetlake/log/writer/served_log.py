"""A log that another process owns, written to through its door (`offsetlake.log.writer.append_protocol`)."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from offsetlake.errors import LogBusy, LogUnavailable
from offsetlake.kafka.batches.writer import Batch
from offsetlake.log.writer import append_protocol
from offsetlake.log.writer.append_protocol import Ask, Status

PATIENCE = 300.0  # seconds for an answer: the owner may be at a slow disk, or at a snapshot while a cut waits for it
PIECE = 32 << 10  # bytes of batches in one request: for some milliseconds the owner does nothing but take it in


class ServedLog:
    """Appends as an `Appender` does, on condition: a group that was written to since `end` was asked is passed over.

    `principal` is who this is, as the owner of the log knows it.
    """

    def __init__(self, folder: Path, connection: socket.socket) -> None:
        self._folder, self._connection = folder, connection
        self._answers = connection.makefile("rb")
        self._looked_up_to: dict[int, int] = {}
        self.principal = self._ask(Ask.HELLO, append_protocol.HELLO_FIELDS.pack(append_protocol.VERSION)).decode()

    def end(self, partition: int) -> int:
        """Give the log offset up to which a partition must have been looked at before anything is appended to it."""
        (end,) = append_protocol.LOG_OFFSET.unpack(self._ask(Ask.END, append_protocol.END_FIELDS.pack(partition)))
        self._looked_up_to[partition] = end
        return int(end)

    def append(self, partition: int, batches: Sequence[Batch]) -> list[int]:
        """Append batches, each of one group; gives the log offset of the first record of each, or -1.

        -1 is WRITTEN_SINCE: records of the group came into the log behind what `end` has told. Nothing of such a batch
        is in the log. Raises LogUnavailable: then it is not known whether these batches are in the log.
        """
        head = append_protocol.APPEND_FIELDS.pack(partition, self._looked_up_to[partition])
        firsts: list[int] = []
        for piece in _pieces(batches):
            sized = (part for batch in piece for part in (append_protocol.SIZE.pack(len(batch.data)), batch.data))
            answer = self._ask(Ask.APPEND, head, *sized)
            firsts += (at for (at,) in append_protocol.LOG_OFFSET.iter_unpack(answer))
        return firsts

    def sync(self) -> None:
        """Return when all that was appended is on disk; LogUnavailable where the disk cannot say so."""
        self._ask(Ask.SYNC)

    def cut(self, lake: Path, partition: int, needed: int) -> tuple[int, int]:
        """Have the segments deleted that end at or below log offset `needed`; gives how many, and their bytes."""
        fields = append_protocol.CUT_FIELDS.pack(partition, needed), str(lake.resolve()).encode()
        segments, size = append_protocol.CUT_ANSWER.unpack(self._ask(Ask.CUT, *fields))
        return int(segments), int(size)

    def close(self) -> None:
        """Go out."""
        self._answers.close()
        self._connection.close()

    def _ask(self, ask: Ask, *fields: bytes | bytearray) -> bytes:
        """Ask, and give the fields of the answer; LogBusy or LogUnavailable where it is not done."""
        try:
            self._connection.sendall(append_protocol.frame(ask, *fields))
            answer = self._read(*append_protocol.SIZE.unpack(self._read(append_protocol.SIZE.size)))
        except (OSError, EOFError) as error:
            raise LogUnavailable(
                f"the server that writes to the log {self._folder} has gone or does not answer ({error}): what was "
                "planned and not done stays planned; run it again"
            ) from error
        if answer[0] == Status.DONE:
            return answer[1:]
        told = answer[1:].decode()
        raise LogBusy(told) if answer[0] == Status.BUSY else LogUnavailable(told)

    def _read(self, size: int) -> bytes:
        data = self._answers.read(size)
        if len(data) < size:
            raise EOFError("it ended the connection")
        return data


def _pieces(batches: Sequence[Batch]) -> Iterator[list[Batch]]:
    """Part batches into pieces of about PIECE bytes."""
    piece: list[Batch] = []
    size = 0
    for batch in batches:
        if piece and size + len(batch.data) > PIECE:
            yield piece
            piece, size = [], 0
        piece.append(batch)
        size += len(batch.data)
    if piece:
        yield piece


@contextmanager
def served(folder: Path) -> Iterator[ServedLog | None]:
    """Come in at the door of the log in `folder`; None where no process serves it.

    Raises LogBusy where it still loads the log, LogUnavailable where the door cannot be used.
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
    connection.settimeout(PATIENCE)
    try:
        with append_protocol.address_of(folder) as address:
            connection.connect(address)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):  # none, or left by one that was killed
        connection.close()
        return None
    except OSError as error:
        connection.close()
        raise LogUnavailable(
            f"The job socket {folder}/{append_protocol.SOCKET} of the server that owns the log cannot be used: "
            f"{error.strerror}."
        ) from error
    return connection
