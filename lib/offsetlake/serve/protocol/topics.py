"""Which topics there are: those named, with their partitions, or any."""

import uuid
from collections.abc import Mapping

from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.log.positions import OFFSETS_TOPIC, SHARE_STATE_TOPIC

INTERNAL = OFFSETS_TOPIC.encode()
"""The log itself: it is always there."""

NOT_HERE = (SHARE_STATE_TOPIC.encode(), b"__transaction_state", b"")
"""What else is internal to a broker: nobody may take an end of it for one that is only not known. And the empty name,
which no topic can have."""

MAX_OFFSET = 2**63 - 1
"""The last offset there can be: ListOffsets gives it for ends of logs, that nobody here knows; nobody may commit it."""

MAX_PARTITIONS = 100_000
"""Of a topic that is not named: one commit can name any, and all below it would be there. Clusters have some ten
thousand of one at the most."""

MAX_REMEMBERED_TOPICS = 10_000
"""Topics that are kept in mind because somebody asked for them, and nothing else: names can be made up without end."""

_SPACE = uuid.UUID("0f5e71a4-1c0e-5d3a-9b1e-6f66736c616b")  # the ids of topics that nothing gives another


class Topics:
    """Topics by name and by id. With `named` only those and the log are there; without, any that is asked for.

    The id of a topic is what the log says of it, or else follows from its name, so that it never changes.
    """

    def __init__(self, named: Mapping[bytes, int] | None, log_partitions: int) -> None:
        self._fixed = {**(named or {}), **dict.fromkeys(NOT_HERE, 0), INTERNAL: log_partitions}
        self.any = named is None
        """Whether any topic is there."""
        self._ids: dict[bytes, bytes] = {}
        self._names: dict[bytes, bytes] = {}
        self._counts: dict[bytes, int] = {}
        self._asked: dict[bytes, None] = {}  # the oldest first
        for name, partitions in self._fixed.items():
            if partitions:
                self.id_of(name)

    def learn(self, topics: Mapping[bytes, tuple[int, bytes]]) -> None:
        """Take in what the log says of topics: the highest partition with offsets, and the id; zeros are none."""
        for name, (last, id_) in topics.items():
            self.grow(name, last)
            if id_ != ZERO_UUID:
                self._names.pop(self._ids.get(name, b""), None)
                self._ids[name], self._names[id_] = id_, name

    def grow(self, name: bytes, partition: int) -> None:
        """Take in that an offset of a partition is stored."""
        if partition >= self._counts.get(name, 0):
            self._counts[name] = partition + 1

    def known(self) -> list[bytes]:
        """Give all topics that are named, or else all that offsets are stored of, and the log, in order."""
        return sorted({*self._fixed, *(self._counts if self.any else ())} - {*NOT_HERE})

    def partitions(self, name: bytes) -> int:
        """Give how many partitions a topic has: as it is named, or else as stored offsets tell, and at least one.

        0 where there is no such topic, and never more than MAX_PARTITIONS of one that is not named.
        """
        fixed = self._fixed.get(name)
        if fixed is not None:
            return fixed
        return min(self._counts.get(name, 1), MAX_PARTITIONS) if self.any else 0

    def id_of(self, name: bytes) -> bytes:
        """Give the 16 bytes of a topic's id."""
        id_ = self._ids.get(name)
        if id_ is None:
            id_ = self._ids[name] = uuid.uuid5(_SPACE, name.hex()).bytes
            self._names[id_] = name
            if name not in self._fixed and name not in self._counts:
                self._keep(name)
        return id_

    def _keep(self, name: bytes) -> None:
        """Keep a topic in mind that is only asked for; the oldest is forgotten, unless it has offsets by now."""
        self._asked[name] = None
        if len(self._asked) > MAX_REMEMBERED_TOPICS:
            oldest = next(iter(self._asked))
            del self._asked[oldest]
            if oldest not in self._counts:
                del self._names[self._ids.pop(oldest)]

    def name_of(self, id_: bytes) -> bytes | None:
        """Give the name of the topic with an id; None where nobody asked for that topic yet."""
        return self._names.get(id_)

    def has_partition(self, name: bytes, partition: int) -> bool:
        """Tell whether there is such a partition."""
        fixed = self._fixed.get(name)
        most = fixed if fixed is not None else MAX_PARTITIONS if self.any else 0
        return 0 <= partition < most
