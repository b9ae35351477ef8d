"""The mapped snapshot: columns in one memory-mapped file that are read in place, without a Python object per entry.

The file is a header (its length as int64, then JSON), followed by arrays in the layout of
`offsetlake.serve.storage.snapshot_file`.

| Array                   | Item    | Description |
|-------------------------|---------|-------------|
| hashes, hashed          | group   | CRC-32 of the group names, sorted, and the number of the group of each |
| group_names             | group   | UTF-8; groups are in the order of their log partitions where that is known |
| runs                    | group   | The first run of the group; one more item closes the last group |
| kinds                   | group   | The index of the group's kind in `kinds` of the header |
| details                 | group   | JSON with the members of the group; empty for classic groups without |
| replay_states           | group   | `replay_state`; empty of a streams group, and if the group has only commits |
| run_topics, run_starts  | run     | The number of the topic by name, and the first entry; one more item at the end |
| partitions, offsets, epochs, metadata, topic_ids | entry | Columns of `offsets`, in the narrowest integer types |
| topic_names, metadata_texts, topic_id_bytes | text | UTF-8; topic ids are 16 bytes each |

A run contains the offsets of one group in one topic, in the order of partitions. Texts are one array of bytes, and an
array `<name>_ends` with the end of each text.
"""

import json
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator
from mmap import ACCESS_READ, mmap
from typing import Any, NamedTuple
from zlib import crc32

from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.storage.group_details import GroupDetails, GroupKind

HEADER = struct.Struct("<q")
_PARTITION = struct.Struct(">i")


class SnapshotOffset(NamedTuple):
    """A stored offset, as answers contain it."""

    offset: int
    epoch: int
    metadata: bytes
    topic_id: bytes


Stored = tuple[int, int, bytes, bytes]
"""The fields of an entry as a plain tuple: offset, leader epoch, metadata, topic id."""

PendingEntry = tuple[int, SnapshotOffset | None]
"""Log offset of an offset of an open transaction, and the entry that a COMMIT stores; None if a newer one is stored."""

PendingRow = tuple[bytes, bytes, int, tuple[int, int], PendingEntry]
"""Group, topic, partition, transaction (producer id and log partition), and the offset."""

NO_RUN = range(0)


class MappedSnapshot:
    """Reads a mapped snapshot. Groups and runs are identified by numbers; names are UTF-8 bytes."""

    def __init__(self, file: int) -> None:
        """Map the file with the given descriptor."""
        self._mapped = mmap(file, 0, access=ACCESS_READ)
        whole = memoryview(self._mapped)
        (size,) = HEADER.unpack_from(whole)
        header = json.loads(bytes(whole[HEADER.size : HEADER.size + size]))
        self.version: int = header["version"]
        """The version of the Delta table `offsets` that the snapshot was built from."""
        self.position: dict[int, int] = dict(header["position"])
        """By log partition, the log offset after the last record that the snapshot contains."""
        self.created_ms: int = header["created_ms"]
        """When the snapshot was built, in ms since the epoch."""
        self.kinds: list[GroupKind] = header["kinds"]
        self.pending = [_pending(row) for row in header["pending"]]
        self.unknown = frozenset(map(str.encode, header["unknown"]))
        """The groups that records that cannot be decoded leave unknown, or of which they leave an offset unknown."""
        self.in_doubt: dict[bytes, frozenset[bytes]] = {
            group.encode(): frozenset(topic.encode() + _PARTITION.pack(number) for topic, number in keys)
            for group, keys in header["in_doubt"].items()
        }
        """By group, the keys of the offsets that are unknown, as memtables have them."""
        self.partly_read = frozenset(map(str.encode, header["partly_read"]))
        """The groups of which a batch that cannot be read may have offsets that no other record has."""
        self.not_read: dict[str, frozenset[int]] = {topic: frozenset(of) for topic, of in header["not_read"].items()}
        """By log topic, the numbers of the log partitions that the folder of the log lacks."""
        self.groups_not_read = self.not_read.get(OFFSETS_TOPIC, frozenset())
        """The numbers of those that coordinate groups."""
        self.missing: dict[str, str] = header["missing"]
        """By log partition, the log offsets of records that the folder of the log lacks."""
        self.known_topics: dict[bytes, tuple[int, bytes]] = {
            name.encode(): (last, bytes.fromhex(id_)) for name, (last, id_, _) in header["topics"].items()
        }
        """By topic, the highest partition with a stored offset, and the topic id of the newest commit that had one."""
        self._other_ids = {name.encode(): ids for name, (_, _, ids) in header["topics"].items() if ids}
        self.log_ends: dict[tuple[bytes, int], tuple[int, int]] = {
            (name.encode(), partition): (first, end) for name, partition, first, end in header["ends"]
        }
        """By topic and partition, the log start offset and the log end offset when they were last collected."""
        start = HEADER.size + size

        def array(name: str) -> memoryview:
            begin, stop, code = header["arrays"][name]
            return whole[start + begin : start + stop].cast(code)

        self._hashes, self._hashed = array("hashes"), array("hashed")
        self._runs, self._group_kinds = array("runs"), array("kinds")
        self._run_topics, self._run_starts = array("run_topics"), array("run_starts")
        self._partitions = array("partitions")
        self.offsets, self.epochs = array("offsets"), array("epochs")
        self._metadata, self._topic_ids = array("metadata"), array("topic_ids")
        self._group_names = array("group_names"), array("group_names_ends")
        self._details = array("details"), array("details_ends")
        self._replay_states = array("replay_states"), array("replay_states_ends")
        self._metadata_texts = array("metadata_texts"), array("metadata_texts_ends")
        self._ids = array("topic_id_bytes")
        self._first_metadata = _text(self._metadata_texts, 0) if len(self._metadata_texts[1]) else b""
        names = array("topic_names"), array("topic_names_ends")
        self.topics = [_text(names, number) for number in range(len(names[1]))]
        self._topic_numbers = {name: number for number, name in enumerate(self.topics)}

    def topic_ids(self) -> dict[bytes, set[bytes]]:
        """Return, by topic, the topic ids of its offsets, also of pending ones; zeros for offsets without one."""
        found = {name: {newest} for name, (_, newest) in self.known_topics.items()}
        for name, ids in self._other_ids.items():
            found[name].update(map(bytes.fromhex, ids))
        for _, topic, _, _, _ in self.pending:
            found.setdefault(topic, set()).add(ZERO_UUID)
        return found

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._partitions)

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return len(self._mapped)

    @property
    def groups(self) -> range:
        """The numbers of all groups."""
        return range(len(self._hashed))

    def group(self, name: bytes) -> int:
        """Return the number of a group, or -1 if there is no such group."""
        name_hash = crc32(name)
        index = bisect_left(self._hashes, name_hash)
        while index < len(self._hashes) and self._hashes[index] == name_hash:
            group = self._hashed[index]
            if _text(self._group_names, group) == name:
                return int(group)
            index += 1
        return -1

    def names_by_hash(self, min_hash: int) -> Iterator[tuple[int, bytes]]:
        """Yield the CRC-32 and the name of each group whose CRC-32 is at least `min_hash`, sorted."""
        index = bisect_left(self._hashes, min_hash)
        while index < len(self._hashes):
            name_hash = self._hashes[index]
            stop = bisect_right(self._hashes, name_hash, index)
            yield from sorted((name_hash, self.name(self._hashed[number])) for number in range(index, stop))
            index = stop

    def name(self, group: int) -> bytes:
        """Return the name of a group."""
        return _text(self._group_names, group)

    def kind(self, group: int) -> GroupKind:
        """Return the kind of a group: type, state, protocol type and protocol, as columns of `groups`."""
        return self.kinds[self._group_kinds[group]]

    def details(self, group: int) -> GroupDetails:
        """Return what is known of a group that is not live; empty for classic groups."""
        text = _text(self._details, group)
        details: GroupDetails = json.loads(text) if text else {}
        return details

    def replay_state(self, group: int) -> dict[str, Any] | None:
        """Return `GroupState.to_dict` of a classic or consumer group; None for one that has only commits."""
        text = _text(self._replay_states, group)
        state: dict[str, Any] | None = json.loads(text) if text else None
        return state

    def run(self, group: int, topic: bytes) -> range:
        """Return the entries of a group in a topic."""
        number = self._topic_numbers.get(topic)
        if number is not None:
            first, stop = self._runs[group], self._runs[group + 1]
            run = bisect_left(self._run_topics, number, first, stop)
            if run < stop and self._run_topics[run] == number:
                return range(self._run_starts[run], self._run_starts[run + 1])
        return NO_RUN

    def find(self, run: range, partition: int) -> int:
        """Return the entry of a partition in a run, or -1 if there is none."""
        entry = run.start + partition  # the position if the group has an offset for every partition
        if entry not in run or self._partitions[entry] != partition:
            entry = bisect_left(self._partitions, partition, run.start, run.stop)
            if entry == run.stop or self._partitions[entry] != partition:
                return -1
        return entry

    def stored(self, run: range, partition: int) -> Stored | None:
        """Return the stored offset of a partition in a run, or None if there is none."""
        entry = self.find(run, partition)
        if entry < 0:
            return None
        number, text = 16 * self._topic_ids[entry], self._metadata[entry]
        metadata = _text(self._metadata_texts, text) if text else self._first_metadata  # mostly the empty one
        return self.offsets[entry], self.epochs[entry], metadata, bytes(self._ids[number : number + 16])

    def entry(self, index: int) -> SnapshotOffset:
        """Return the entry with an index."""
        number = self._topic_ids[index]
        return SnapshotOffset(
            self.offsets[index],
            self.epochs[index],
            _text(self._metadata_texts, self._metadata[index]),
            bytes(self._ids[16 * number : 16 * number + 16]),
        )

    def partitions(self, group: int) -> Iterator[tuple[bytes, list[int]]]:
        """Yield each topic in which a group has offsets, with the partitions in ascending order."""
        for run in range(self._runs[group], self._runs[group + 1]):
            entries = slice(self._run_starts[run], self._run_starts[run + 1])
            yield self.topics[self._run_topics[run]], self._partitions[entries].tolist()

    def entries(
        self, group: int, topics: Container[bytes] | None = None
    ) -> Iterator[tuple[bytes, int, SnapshotOffset]]:
        """Yield the entries of a group, of all topics or of some, with topic and partition, in their order."""
        for run in range(self._runs[group], self._runs[group + 1]):
            topic = self.topics[self._run_topics[run]]
            if topics is not None and topic not in topics:
                continue
            for index in range(self._run_starts[run], self._run_starts[run + 1]):
                yield topic, self._partitions[index], self.entry(index)


def _pending(row: list[Any]) -> PendingRow:
    group, topic, partition, producer_id, log_partition, log_offset, value = row
    entry = None
    if value is not None:
        offset, epoch, metadata, topic_id = value
        entry = SnapshotOffset(offset, epoch, metadata.encode(), bytes.fromhex(topic_id))
    return group.encode(), topic.encode(), partition, (producer_id, log_partition), (log_offset, entry)


def _text(texts: tuple[memoryview, memoryview], number: int) -> bytes:
    data, ends = texts
    return bytes(data[ends[number - 1] if number else 0 : ends[number]])
