"""The offsets of one group at one moment, which a request can read in several steps."""

import struct
from collections.abc import Iterable, Sequence

from offsetlake.serve.steps import Steps
from offsetlake.serve.storage.mapped_snapshot import NO_RUN, MappedSnapshot, Stored
from offsetlake.serve.storage.memtable import VALUE

_PARTITION = struct.Struct(">i")
_KEY_BYTES = 100  # approximate memory of one key in the copy of a memtable
_STEP_KEYS = 500


class GroupOffsets:
    """The offsets of one group: those in the mapped snapshot, and copies of its entries in the memtables above it.

    `layers` are the copies, the newest first. They do not change while the offsets are read in several steps.
    """

    def __init__(self, snapshot: MappedSnapshot, number: int, layers: Sequence[dict[bytes, bytes]]) -> None:
        self._snapshot, self._number, self._layers = snapshot, number, layers

    def read(self, topic: bytes, partitions: Iterable[int]) -> list[Stored | None]:
        """Return the stored offset of each of the given partitions of a topic, None for a partition without one."""
        return read(self._snapshot, self._number, self._layers, topic, partitions)

    def partitions(self) -> Steps[dict[bytes, list[int]]]:
        """Return, by topic, the partitions that have an offset; yields as `Work` does."""
        yield sum(map(len, self._layers)) * _KEY_BYTES
        partitions: dict[bytes, dict[int, None]] = {}
        for topic, numbers in self._snapshot.partitions(self._number) if self._number >= 0 else ():
            partitions[topic] = dict.fromkeys(numbers)
            yield len(numbers) * _KEY_BYTES
        for layer in reversed(self._layers):
            for index, (key, value) in enumerate(layer.items()):
                topic, (partition,) = key[:-4], _PARTITION.unpack(key[-4:])
                if value:
                    partitions.setdefault(topic, {})[partition] = None
                elif topic in partitions:
                    partitions[topic].pop(partition, None)
                if index % _STEP_KEYS == 0:
                    yield 0
        return {topic: [*numbers] for topic, numbers in partitions.items() if numbers}


def read(
    snapshot: MappedSnapshot, number: int, layers: Sequence[dict[bytes, bytes]], topic: bytes, partitions: Iterable[int]
) -> list[Stored | None]:
    """Return the stored offsets of partitions of a group; `number` is the group's number in the snapshot, or -1."""
    run = snapshot.run(number, topic) if number >= 0 else NO_RUN
    if not layers:
        return [snapshot.stored(run, partition) for partition in partitions]
    offsets: list[Stored | None] = []
    for partition in partitions:
        key = topic + _PARTITION.pack(partition)
        for layer in layers:
            value = layer.get(key)
            if value is not None:
                offset, epoch, topic_id = VALUE.unpack_from(value) if value else (0, 0, b"")
                offsets.append((offset, epoch, value[VALUE.size :], topic_id) if value else None)
                break
        else:
            offsets.append(snapshot.stored(run, partition))
    return offsets
