"""The offsets of one group as they were at one moment, for reading them in turns."""

import struct
from collections.abc import Iterable, Sequence

from offsetlake.serve.steps import Steps
from offsetlake.serve.storage.mapped_snapshot import NO_RUN, MappedSnapshot, Stored

VALUE = struct.Struct(">qi16s")
"""committed_offset, leader_epoch, topic_id; the metadata follows."""

_PARTITION = struct.Struct(">i")
_KEY_BYTES = 100  # of memory, about, of a key in the copy of a layer
_AT_ONCE = 500  # keys


class Moment:
    """The offsets of one group in a base, and in copies of what the layers over it have, the newest first."""

    def __init__(self, base: MappedSnapshot, number: int, layers: Sequence[dict[bytes, bytes]]) -> None:
        self._base, self._number, self._layers = base, number, layers

    def read(self, topic: bytes, partitions: Iterable[int]) -> list[Stored | None]:
        """Return what is stored of some partitions of a topic; None where nothing is."""
        return read(self._base, self._number, self._layers, topic, partitions)

    def partitions(self) -> Steps[dict[bytes, list[int]]]:
        """Return by topic the partitions that have an offset; yields as `Work` does."""
        yield sum(map(len, self._layers)) * _KEY_BYTES
        found: dict[bytes, dict[int, None]] = {}
        for topic, numbers in self._base.partitions(self._number) if self._number >= 0 else ():
            found[topic] = dict.fromkeys(numbers)
            yield len(numbers) * _KEY_BYTES
        for layer in reversed(self._layers):
            for at, (name, value) in enumerate(layer.items()):
                topic, (partition,) = name[:-4], _PARTITION.unpack(name[-4:])
                if value:
                    found.setdefault(topic, {})[partition] = None
                elif topic in found:
                    found[topic].pop(partition, None)
                if at % _AT_ONCE == 0:
                    yield 0
        return {topic: [*numbers] for topic, numbers in found.items() if numbers}


def read(
    base: MappedSnapshot, number: int, layers: Sequence[dict[bytes, bytes]], topic: bytes, partitions: Iterable[int]
) -> list[Stored | None]:
    """Return what is stored of some partitions of a group; `number` is that of the group in the base, or -1."""
    run = base.run(number, topic) if number >= 0 else NO_RUN
    if not layers:
        return [base.stored(run, partition) for partition in partitions]
    found: list[Stored | None] = []
    for partition in partitions:
        name = topic + _PARTITION.pack(partition)
        for layer in layers:
            value = layer.get(name)
            if value is not None:
                offset, epoch, topic_id = VALUE.unpack_from(value) if value else (0, 0, b"")
                found.append((offset, epoch, value[VALUE.size :], topic_id) if value else None)
                break
        else:
            found.append(base.stored(run, partition))
    return found
