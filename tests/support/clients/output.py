"""The output of real consumers: a line per batch of a partition, written before its offsets are committed.

Lines have fields separated by tabs:

| Line | Fields |
|---|---|
| `R`, records | time, partition, first and last log offset, timestamps of the first and of the last record |
| `E`, event | time, text |

Times are in milliseconds. A line is in the file when the next one begins, also if its process is killed then.
"""

import os
import re
import time
from pathlib import Path
from typing import NamedTuple

CONSOLE_RECORD = re.compile(r"CreateTime:(\d+)\tPartition:(\d+)\tOffset:(\d+)\t")
"""A line of Kafka's console consumer with timestamp, partition and offset, which contains no time of its own."""


class Batch(NamedTuple):
    """Records of a partition that a consumer read together; times in ms, `read_ms` is None if it is not known."""

    read_ms: int | None
    partition: int
    first: int
    last: int
    first_ms: int
    last_ms: int


class Output:
    """Appends lines to the file of a consumer."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def records(self, partition: int, read: list[tuple[int, int]]) -> None:
        """Write the log offsets and timestamps of records of a partition, which must be contiguous."""
        (first, first_ms), (last, last_ms) = read[0], read[-1]
        if last - first != len(read) - 1:
            raise ValueError(f"Offsets {first} to {last} of partition {partition}: {len(read)} records")
        self._write("R", partition, first, last, first_ms, last_ms)

    def event(self, text: str) -> None:
        """Write an event."""
        self._write("E", " ".join(text.split()))

    def _write(self, kind: str, *fields: object) -> None:
        line = "\t".join(map(str, (kind, time.time_ns() // 1_000_000, *fields)))
        os.write(self._file, f"{line}\n".encode())


def batches(path: Path) -> list[Batch]:
    """Return what a consumer has read, in the order in which it did."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("R\t"):
            read_ms, *numbers = map(int, line.split("\t")[1:])
            found.append(Batch(read_ms, *numbers))
        elif match := CONSOLE_RECORD.search(line):  # after a line that the end of a process has cut
            timestamp, partition, offset = map(int, match.groups())
            found.append(Batch(None, partition, offset, offset, timestamp, timestamp))
    return found


def events(path: Path) -> list[tuple[int, str]]:
    """Return the time and text of the events."""
    lines = (line.split("\t", 2) for line in path.read_text(errors="replace").splitlines() if line.startswith("E\t"))
    return [(int(at_ms), text) for _, at_ms, text in lines]
