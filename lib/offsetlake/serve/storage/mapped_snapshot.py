"""The base of what is served: a snapshot as columns in one mapped file, read in place, with no Python object an entry.

The file is a header (its length as int64, then JSON), followed by arrays in the layout of
`offsetlake.serve.storage.snapshot_file`.

| array                   | one an  | is |
|-------------------------|---------|----|
| hashes, hashed          | group   | CRC-32 of the groups' names, sorted; and which group each is |
| group_names             | group   | UTF-8; groups are in the order of their log partitions, as far as that is known |
| runs                    | group   | its first run; one more closes the last |
| kinds                   | group   | which of the header's `kinds` it is |
| details                 | group   | JSON of its members and what goes with them; empty for classic groups without |
| run_topics, run_starts  | run     | its topic, by number in the order of names, and its first entry; one more |
| partitions, offsets, epochs, metadata, topic_ids | entry | columns of `offsets`, kept narrow |
| topic_names, metadata_texts, topic_id_bytes | text | UTF-8; the ids are 16 bytes each |

A run is the offsets of one group in one topic, in the order of partitions. Texts are one array of bytes, and
`<name>_ends` with the end of each.
"""

import json
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from typing import Any, NamedTuple
from zlib import crc32

HEADER = struct.Struct("<q")


class Entry(NamedTuple):
    """A stored offset, as it is answered."""

    offset: int
    epoch: int
    metadata: bytes
    topic_id: bytes


Stored = tuple[int, int, bytes, bytes]
"""What is answered of an entry: offset, leader epoch, metadata, topic id."""

Held = tuple[int, Entry | None]
"""Of an offset of an open transaction its log offset, and what a COMMIT stores; None where something newer is."""

Waiting = tuple[bytes, bytes, int, tuple[int, int], Held]
"""Group, topic, partition, and whose it is: producer id and log partition."""

NO_RUN = range(0)


class MappedSnapshot:
    """A mapped snapshot. Groups and runs are numbers here; names are bytes of UTF-8."""

    def __init__(self, file: int) -> None:
        """Map a file, given by its descriptor."""
        self._mapped = mmap(file, 0, access=ACCESS_READ)
        whole = memoryview(self._mapped)
        (size,) = HEADER.unpack_from(whole)
        header = json.loads(bytes(whole[HEADER.size : HEADER.size + size]))
        self.version: int = header["version"]
        """Delta version of the table `offsets` it was made of."""
        self.position: dict[int, int] = dict(header["position"])
        """By log partition, the log offset behind what it has."""
        self.made: int = header["made"]
        """When it was made, ms."""
        self.kinds: list[dict[str, Any]] = header["kinds"]
        self.pending = [_pending(row) for row in header["pending"]]
        self.known_topics: dict[bytes, tuple[int, bytes]] = {
            name.encode(): (last, bytes.fromhex(id_)) for name, (last, id_) in header["topics"].items()
        }
        """By topic the highest partition that offsets are stored of, and the newest id that commits gave it."""
        self.log_ends: dict[tuple[bytes, int], tuple[int, int]] = {
            (name.encode(), partition): (first, end) for name, partition, first, end in header["ends"]
        }
        """By topic and partition where its log began and ended when that was asked last."""
        start = HEADER.size + size

        def array(name: str) -> memoryview:
            at, stop, code = header["arrays"][name]
            return whole[start + at : start + stop].cast(code)

        self._hashes, self._hashed = array("hashes"), array("hashed")
        self._runs, self._group_kinds = array("runs"), array("kinds")
        self._run_topics, self._run_starts = array("run_topics"), array("run_starts")
        self._partitions = array("partitions")
        self.offsets, self.epochs = array("offsets"), array("epochs")
        self._metadata, self._topic_ids = array("metadata"), array("topic_ids")
        self._group_names = array("group_names"), array("group_names_ends")
        self._details = array("details"), array("details_ends")
        self._metadata_texts = array("metadata_texts"), array("metadata_texts_ends")
        self._ids = array("topic_id_bytes")
        self._first_metadata = _text(self._metadata_texts, 0) if len(self._metadata_texts[1]) else b""
        names = array("topic_names"), array("topic_names_ends")
        self.topics = [_text(names, number) for number in range(len(names[1]))]
        self._topic_numbers = {name: number for number, name in enumerate(self.topics)}

    def __len__(self) -> int:
        """Count the entries."""
        return len(self._partitions)

    @property
    def size(self) -> int:
        """Give the bytes it takes."""
        return len(self._mapped)

    @property
    def groups(self) -> range:
        """All groups."""
        return range(len(self._hashed))

    def group(self, name: bytes) -> int:
        """Find a group; -1 where there is none."""
        code = crc32(name)
        at = bisect_left(self._hashes, code)
        while at < len(self._hashes) and self._hashes[at] == code:
            group = self._hashed[at]
            if _text(self._group_names, group) == name:
                return int(group)
            at += 1
        return -1

    def places(self, code: int) -> Iterator[tuple[int, bytes]]:
        """Give CRC-32 and name of all groups from a CRC-32 on, sorted."""
        at = bisect_left(self._hashes, code)
        while at < len(self._hashes):
            found = self._hashes[at]
            stop = bisect_right(self._hashes, found, at)
            yield from sorted((found, self.name(self._hashed[each])) for each in range(at, stop))
            at = stop

    def name(self, group: int) -> bytes:
        """Give the name of a group."""
        return _text(self._group_names, group)

    def kind(self, group: int) -> dict[str, Any]:
        """Give what the group shares with others: columns of `groups`."""
        return self.kinds[self._group_kinds[group]]

    def details(self, group: int) -> dict[str, Any]:
        """Give what only groups with members have, and those of type consumer."""
        text = _text(self._details, group)
        found: dict[str, Any] = json.loads(text) if text else {}
        return found

    def run(self, group: int, topic: bytes) -> range:
        """Give the entries of a group in a topic."""
        number = self._topic_numbers.get(topic)
        if number is not None:
            first, stop = self._runs[group], self._runs[group + 1]
            at = bisect_left(self._run_topics, number, first, stop)
            if at < stop and self._run_topics[at] == number:
                return range(self._run_starts[at], self._run_starts[at + 1])
        return NO_RUN

    def find(self, run: range, partition: int) -> int:
        """Find the entry of a partition in a run; -1 where there is none."""
        at = run.start + partition  # where a group has offsets of all partitions
        if at not in run or self._partitions[at] != partition:
            at = bisect_left(self._partitions, partition, run.start, run.stop)
            if at == run.stop or self._partitions[at] != partition:
                return -1
        return at

    def stored(self, run: range, partition: int) -> Stored | None:
        """Give what is stored of a partition in a run; None where nothing is."""
        at = self.find(run, partition)
        if at < 0:
            return None
        number, text = 16 * self._topic_ids[at], self._metadata[at]
        metadata = _text(self._metadata_texts, text) if text else self._first_metadata  # mostly the empty one
        return self.offsets[at], self.epochs[at], metadata, bytes(self._ids[number : number + 16])

    def entry(self, at: int) -> Entry:
        """Give an entry."""
        number = self._topic_ids[at]
        return Entry(
            self.offsets[at],
            self.epochs[at],
            _text(self._metadata_texts, self._metadata[at]),
            bytes(self._ids[16 * number : 16 * number + 16]),
        )

    def partitions(self, group: int) -> Iterator[tuple[bytes, list[int]]]:
        """Return, of each topic a group has offsets in, the partitions, in their order."""
        for run in range(self._runs[group], self._runs[group + 1]):
            entries = slice(self._run_starts[run], self._run_starts[run + 1])
            yield self.topics[self._run_topics[run]], self._partitions[entries].tolist()

    def entries(self, group: int) -> Iterator[tuple[bytes, int, Entry]]:
        """Give all entries of a group with topic and partition, in their order."""
        for run in range(self._runs[group], self._runs[group + 1]):
            topic = self.topics[self._run_topics[run]]
            for at in range(self._run_starts[run], self._run_starts[run + 1]):
                yield topic, self._partitions[at], self.entry(at)


def _pending(row: list[Any]) -> Waiting:
    group, topic, partition, producer_id, log_partition, log_offset, value = row
    entry = None
    if value is not None:
        offset, epoch, metadata, topic_id = value
        entry = Entry(offset, epoch, metadata.encode(), bytes.fromhex(topic_id))
    return group.encode(), topic.encode(), partition, (producer_id, log_partition), (log_offset, entry)


def _text(texts: tuple[memoryview, memoryview], number: int) -> bytes:
    data, ends = texts
    return bytes(data[ends[number - 1] if number else 0 : ends[number]])
