"""The hash of the topics of a group: the group is rebalanced when it changes (`Utils` of Kafka's group coordinator).

Both hashes are XXH3 of 64 bits. Numbers are little-endian; a string is its UTF-16 code units and their number.
"""

import struct
from collections.abc import Iterable

import xxhash

from offsetlake.coordinator.topics import TopicDescriptions
from offsetlake.kafka.uuid import uuid_bytes

_MAGIC = b"\0"
_NO_TOPICS = 0


class MetadataHashes:
    """Hashes of existing topics for all groups, kept until the description of the topics has another version.

    Nothing is kept of other topics: their names are without number.
    """

    __slots__ = ("_by_name", "_version")

    def __init__(self) -> None:
        self._version: int | None = None
        self._by_name: dict[str, bytes] = {}

    def of(self, names: Iterable[str], topics: TopicDescriptions) -> int:
        """Return the hash of the topics that exist, as a signed number."""
        if self._version != topics.version():
            self._version, self._by_name = topics.version(), {}
        hashes = [digest for name in sorted(names) if (digest := self._topic(name, topics))]
        if not hashes:
            return _NO_TOPICS
        (group_hash,) = struct.unpack(">q", xxhash.xxh3_64_digest(b"".join(hashes)))
        return int(group_hash)

    def _topic(self, name: str, topics: TopicDescriptions) -> bytes:
        digest = self._by_name.get(name)
        if digest is None:
            topic_id = topics.id_of(name)
            if topic_id is None:
                return b""
            # The group's hash is computed over little-endian numbers; a digest is big-endian.
            digest = self._by_name[name] = topic_digest(name, topic_id, topics)[::-1]
        return digest


def topic_digest(name: str, topic_id: str, topics: TopicDescriptions) -> bytes:
    """Return the hash of a topic: its ID, name, and the racks of the replicas of each partition."""
    partitions, racks = topics.partitions(name), topics.racks(name)
    most, least = struct.unpack(">QQ", uuid_bytes(topic_id))
    parts = [_MAGIC, struct.pack("<QQ", most, least), _string(name), struct.pack("<i", partitions)]
    if racks:
        encoded = {each: _racks(each) for each in {*racks}}
        parts += (struct.pack("<i", partition) + encoded[each] for partition, each in enumerate(racks))
    else:
        parts.append(struct.pack(f"<{partitions}i", *range(partitions)))
    return xxhash.xxh3_64_digest(b"".join(parts))


def _racks(names: Iterable[str]) -> bytes:
    return b"".join(struct.pack("<i", len(_utf_16(name)) // 2) + _string(name) for name in sorted(names, key=_utf_16))


def _string(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + struct.pack("<i", len(units) // 2)


def _utf_16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
