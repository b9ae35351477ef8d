"""The output of share consumers: a line per range of records, written before anything of it is acknowledged.

Lines have fields separated by tabs; `type` is the acknowledgement that the consumer decided on:

| Line | Fields |
|---|---|
| `D`, delivery | time, partition, first and last offset, delivery count, type, earliest time of the acquisition |
| `A`, acknowledged | time of the result, partition, first and last offset, delivery count, type, `OK` or the error |
| `E`, event | time, text |

Times are in ms. The lines of Kafka's console share consumer contain no time; it accepts all records.
"""

import re
from pathlib import Path
from typing import NamedTuple

ACCEPT, RELEASE, REJECT = "accept", "release", "reject"
OK = "OK"

_CONSOLE_RECORD = re.compile(r"Partition:(\d+)\tOffset:(\d+)\tDelivery:(\d+)\t")


class Delivered(NamedTuple):
    """A range of records with one delivery count; `ms` is None if the time is not known."""

    ms: int | None
    partition: int
    first: int
    last: int
    count: int
    type: str
    earliest_ms: int


class Acknowledged(NamedTuple):
    """The result of acknowledging a range of records that were delivered together."""

    ms: int
    partition: int
    first: int
    last: int
    count: int
    type: str
    result: str


def read_output(path: Path) -> tuple[list[Delivered], list[Acknowledged]]:
    """Return what was delivered to a consumer, and what became of it, in the order of the lines."""
    delivered: list[Delivered] = []
    acknowledged: list[Acknowledged] = []
    lines = path.read_text(errors="replace").splitlines(keepends=True) if path.exists() else []
    for line in lines:
        if not line.endswith("\n"):  # cut by a kill
            continue
        kind, *fields = line.rstrip("\n").split("\t")
        if kind in {"D", "A"}:
            numbers = [int(each) for each in fields[:5]]
            if kind == "D":
                delivered.append(Delivered(*numbers, fields[5], int(fields[6])))
            else:
                acknowledged.append(Acknowledged(*numbers, fields[5], fields[6]))
        elif match := _CONSOLE_RECORD.search(line):
            partition, offset, count = map(int, match.groups())
            delivered.append(Delivered(None, partition, offset, offset, count, ACCEPT, 0))
    return delivered, acknowledged
