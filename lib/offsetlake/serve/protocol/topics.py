"""The topics of the serving process: those that are configured, with their partitions, or any topic."""

import re
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.log.positions import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from offsetlake.serve.protocol.described_partitions import NODE, encoded_partitions
from offsetlake.serve.protocol.encoding import Encoded
from offsetlake.serve.protocol.topic_descriptions import DescribedTopics, TopicTable
from offsetlake.util.times import now_ms

INTERNAL = OFFSETS_TOPIC.encode()
"""The topic of the log itself, which always exists."""

MISSING_TOPICS = (SHARE_STATE_TOPIC.encode(), b"__transaction_state", b"")
"""Names that never exist here: the other internal topics of a broker, whose log ends an ingest must not mistake for
unknown ones, and the empty name."""

MAX_OFFSET = 2**63 - 1
"""The largest offset: the end of a range of offsets that is not limited here; it cannot be committed."""

MAX_PARTITIONS = 100_000
"""Maximum number of partitions of a topic that is not configured: one commit can name any partition, and all below it
would exist. Clusters have at most some ten thousand partitions per topic."""

MAX_REMEMBERED_TOPICS = 10_000
"""Maximum number of topics whose ids are kept although they have no offsets: clients can invent names without end."""

_NAME = re.compile(rb"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_SPACE = uuid.UUID("0f5e71a4-1c0e-5d3a-9b1e-6f66736c616b")  # namespace of the ids that are derived from names


def is_valid_name(name: bytes) -> bool:
    """Check whether a topic of a broker can have a name."""
    return _NAME.fullmatch(name) is not None


class NamedPartition(NamedTuple):
    """A topic by name or by id, and one of its partitions."""

    name: bytes | None
    id: bytes = b""
    partition: int = 0


class Topics:
    """The topics by name and by id. With `named` only those and the log exist, without it any topic.

    The id of a topic is the one in the log, or else it is derived from the name, so that it never changes.

    | Field         | Description |
    |---------------|-------------|
    | leads         | Whether this process leads all partitions; otherwise the brokers of a cluster do |
    | awaited       | Whether the topics are not known yet, and the server is still loading |
    | revision      | Changes when topics may have been deleted or created again |
    | changed_ms, created_ms | When topics were last changed, and when they were last created, in ms since the epoch |
    | node, controller_id, brokers | The id of this process as a node, the controller, and the nodes of a cluster |
    """

    leads = True
    awaited = False
    revision = 0
    node = controller_id = NODE
    brokers: Sequence[Any] = ()

    def __init__(self, named: Mapping[bytes, int] | None, log_partitions: int) -> None:
        self._fixed = {**(named or {}), **dict.fromkeys(MISSING_TOPICS, 0), INTERNAL: log_partitions}
        self.any = named is None
        """Whether any topic exists."""
        self._ids: dict[bytes, bytes] = {}
        self._names: dict[bytes, bytes] = {}
        self._counts: dict[bytes, int] = {}
        self._remembered: dict[bytes, None] = {}  # topics without offsets, the oldest first
        self.changed_ms = self.created_ms = now_ms()
        for name, partitions in self._fixed.items():
            if partitions:
                self.id_of(name)

    def learn(self, topics: Mapping[bytes, tuple[int, bytes]]) -> None:
        """Add topics from the log: by name the highest partition that has offsets, and the id, or zeros without id."""
        for name, (partition, id_) in topics.items():
            self.grow(name, partition)
            if id_ != ZERO_UUID:
                self._names.pop(self._ids.get(name, b""), None)
                self._ids[name], self._names[id_] = id_, name

    def grow(self, name: bytes, partition: int) -> None:
        """Record that an offset of a partition is stored."""
        if partition >= self._counts.get(name, 0):
            self._counts[name] = partition + 1

    def now(self) -> TopicTable:
        """Return the topics at this moment."""
        return self

    def descriptions(self) -> DescribedTopics:
        """Return the topics at this moment as the group coordinator sees them."""
        return DescribedTopics(self.now(), self.changed_ms, self.created_ms)

    def request(self, topic: bytes) -> None:
        """Note that a client requested a topic, by name or id, that does not exist."""

    def deferred(self, _named: Callable[[], Collection[NamedPartition]], _proceed: Callable[[], object]) -> bool:
        """Return whether a request is handled later, by `proceed`, because it names topics that may be new."""
        return False

    def when_changed(self, notify: Callable[[frozenset[str]], None]) -> None:
        """Call `notify` with the names of topics that were created, deleted or changed; here, none ever are."""

    def known(self) -> set[bytes]:
        """Return the log and the configured topics and, if any topic exists, those with stored offsets."""
        return {*self._fixed, *(self._counts if self.any else ())} - {*MISSING_TOPICS}

    def configured(self) -> set[bytes]:
        """Return the log and the configured topics."""
        return self._fixed.keys() - {*MISSING_TOPICS}

    def configured_partitions(self, name: bytes) -> int:
        """Return the number of partitions of the log or a configured topic, 0 for any other."""
        return self._fixed.get(name, 0)

    def partitions(self, name: bytes) -> int:
        """Return the number of partitions of a topic, 0 if it does not exist.

        A topic that is not configured has the partitions up to the highest one with a stored offset, at least one and
        at most MAX_PARTITIONS.
        """
        fixed = self._fixed.get(name)
        if fixed is not None:
            return fixed
        return min(self._counts.get(name, 1), MAX_PARTITIONS) if self.any else 0

    def id_of(self, name: bytes) -> bytes:
        """Return the id of a topic as 16 bytes."""
        id_ = self._ids.get(name)
        if id_ is None:
            id_ = self._ids[name] = uuid.uuid5(_SPACE, name.hex()).bytes
            self._names[id_] = name
            if name not in self._fixed and name not in self._counts:
                self._remember(name)
        return id_

    def _remember(self, name: bytes) -> None:
        """Remember a topic without offsets; if there are too many, forget the oldest unless it has offsets by now."""
        self._remembered[name] = None
        if len(self._remembered) > MAX_REMEMBERED_TOPICS:
            oldest = next(iter(self._remembered))
            del self._remembered[oldest]
            if oldest not in self._counts:
                del self._names[self._ids.pop(oldest)]

    def name_of(self, id_: bytes) -> bytes | None:
        """Return the name of the topic with an id, or None if the id is unknown."""
        return self._names.get(id_)

    def has_partition(self, name: bytes, partition: int) -> bool:
        """Check whether a partition exists."""
        fixed = self._fixed.get(name)
        limit = fixed if fixed is not None else MAX_PARTITIONS if self.any else 0
        return 0 <= partition < limit

    def is_internal(self, name: bytes) -> bool:
        """Check whether a topic is internal."""
        return name == INTERNAL

    def racks(self, _name: bytes) -> Sequence[tuple[str, ...]]:
        """Return the racks of the partitions of a topic: none."""
        return ()

    def encoded_partitions(self, _name: bytes, numbers: range, api: int, version: int) -> Encoded:
        """Return partitions of a topic, encoded for Metadata or DescribeTopicPartitions."""
        return encoded_partitions(numbers, api, version)
