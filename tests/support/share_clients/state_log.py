"""What `__share_group_state` contains about each record, decoded without code of the project.

The layout is that of `ShareSnapshotKey`, `ShareSnapshotValue` and `ShareUpdateValue` of Kafka 4.2.
"""

import struct
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from support.oracle.log_reader import read_log

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
STATES = {AVAILABLE: "available", ACKNOWLEDGED: "acknowledged", ARCHIVED: "archived"}
_SNAPSHOT = 0
_BATCH = struct.Struct(">qqbhB")


class State(NamedTuple):
    """The delivery state of a record, and how often it was delivered."""

    state: int
    count: int


class StateLog:
    """The states of all records of share groups of one topic.

    Attributes:
        histories: The states that each record had one after the other, by group, partition and offset.
    """

    def __init__(self, log: Path) -> None:
        self.histories: dict[tuple[str, int], dict[int, list[State]]] = defaultdict(dict)
        for record in read_log(log, "__share_group_state"):
            assert record.key is not None
            assert record.value is not None, "the state of a share partition was deleted"
            kind, length = struct.unpack_from(">hh", record.key)
            group = record.key[4 : 4 + length].decode()
            (partition,) = struct.unpack_from(">i", record.key, 4 + length + 16)
            self._add((group, partition), record.value, is_snapshot=kind == _SNAPSHOT)

    def _add(self, key: tuple[str, int], value: bytes, *, is_snapshot: bool) -> None:
        (version,) = struct.unpack_from(">h", value)
        assert version == 0
        position = 38 if is_snapshot else 18  # after epochs, the start offset, and the timestamps of a snapshot
        batches, position = _unsigned_varint(value, position)
        history = self.histories[key]
        for first, last, state, count, _ in _BATCH.iter_unpack(
            value[position : position + (batches - 1) * _BATCH.size]
        ):
            for offset in range(first, last + 1):
                states = history.setdefault(offset, [])
                if not is_snapshot or not states or states[-1] != (state, count):  # a snapshot repeats the states
                    states.append(State(state, count))

    def completed(self, group: str, partition: int) -> int:
        """Return the number of records that are acknowledged or archived."""
        return sum(states[-1].state != AVAILABLE for states in self.histories[group, partition].values())


def _unsigned_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
