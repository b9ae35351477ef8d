"""What is asked of a cluster and its topics, and how it is answered by one broker that holds no messages but its log.

Where the logs of topics begin and end is answered as a live cluster said when a cycle over it asked last: table
`log_ends` of the lake. Which offset was written at a time is not known, and answered with an error where the end is:
tools take -1, unknown, for nothing written since, and `kafka-consumer-groups --to-datetime` would commit the end.

Of other topics nobody here knows any of it, and ListOffsets has no word for that which tools bear: by an error all of
`--describe` fails, and by -1 for an end no offset can be set, each lies behind it. So a log is said to reach to
MAX_OFFSET, the last offset there can be. `--describe` then shows that as the end, and a lag so large that nobody takes
it for one; `--to-offset` and `--shift-by` work; `--to-latest` and `--to-datetime`, which would commit it, are refused
by OffsetCommit. Where such a log begins, and which offset was written at a time, is answered with -1: `--to-earliest`
fails.
"""

import re
import uuid
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop
from typing import Any

from offsetlake.kafka.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    MISMATCHED_ENDPOINT_TYPE,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_ENDPOINT_TYPE,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
)
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.log.positions import OFFSETS_TOPIC
from offsetlake.serve.apis.described_partitions import NODE, described, encoded_partitions
from offsetlake.serve.apis.log_reads import EARLIEST, LATEST, LogReads
from offsetlake.serve.auth.acl import ANY_PERMISSION
from offsetlake.serve.auth.principals import RequestContext
from offsetlake.serve.protocol import wire
from offsetlake.serve.protocol.api_keys import DESCRIBE_TOPIC_PARTITIONS, METADATA
from offsetlake.serve.protocol.encoding import Lazy, Values
from offsetlake.serve.protocol.topics import INTERNAL, MAX_OFFSET, Topics
from offsetlake.serve.steps import Steps
from offsetlake.serve.storage.store import Store

NO_NODE = -1
MOST_DESCRIBED = 20_000  # partitions, where a commit makes them

_GROUP_KEY, _TRANSACTION_KEY, _SHARE_KEY, _SHARE_KEYS_SINCE = 0, 1, 2, 6
_DENIED = {_GROUP_KEY: GROUP_AUTHORIZATION_FAILED, _TRANSACTION_KEY: TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
_BY_ID_SINCE = 12  # version of Metadata that may name topics by their ids; its fields are there since 10
_KEYS_SINCE = 4  # version of FindCoordinator that asks for many
_BROKERS, _CONTROLLERS = 1, 2
_MOST_PARTITIONS = 2000  # of one answer in pages: max.request.partition.size.limit of a broker
_NO_TIMESTAMP, _NO_OFFSET, _NO_EPOCH = -1, -1, -1
_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_NO_BITS = -(2**31)
_DESCRIBE = 1 << 8
_READ_AND_DESCRIBE = 1 << 3 | _DESCRIBE


class ClusterApis:
    """Answers Metadata, FindCoordinator, DescribeCluster, DescribeTopicPartitions, ListOffsets and Produce."""

    def __init__(self, store: Store, topics: Topics, reads: LogReads, cluster_id: str) -> None:
        self._store, self._topics, self._reads, self._cluster_id = store, topics, reads, cluster_id
        self.address: tuple[str, int]

    def metadata(self, request: Any, asked: RequestContext) -> Steps[Values]:
        """Answer Metadata: this broker and topics, all in `_listed` where none is named."""
        wanted = request.topics
        found: dict[Any, dict[str, Any]] = {}
        if wanted is None or (asked.version == 0 and not wanted):
            for name in self._listed(asked):
                found[name] = self._topic(name)
                yield 0
        elif asked.version < _BY_ID_SINCE and any(of.name is None or getattr(of, "topic_id", None) for of in wanted):
            found = dict(enumerate(map(_invalid_topic, wanted)))
        else:
            for topic in wanted:
                key = topic.name, getattr(topic, "topic_id", None)
                found[key] = found.get(key) or self._asked_topic(topic)
                yield 0
        most = self._most_described([*found.values()])
        operations = {}
        if getattr(request, "include_topic_authorized_operations", False):
            operations = {"topic_authorized_operations": _READ_AND_DESCRIBE}
        topics = (
            topic | {"partitions": described(topic, most, METADATA, asked.version)} | operations
            for topic in found.values()
        )
        with_operations = getattr(request, "include_cluster_authorized_operations", False)
        return {
            "brokers": [self._broker()],
            "cluster_id": self._cluster_id,
            "controller_id": NODE,
            "topics": Lazy(len(found), topics),
            "cluster_authorized_operations": _DESCRIBE if with_operations else _NO_BITS,
        }

    def describe_cluster(self, request: Any, _asked: RequestContext) -> Values:
        """Answer DescribeCluster."""
        kind = getattr(request, "endpoint_type", _BROKERS)
        if kind != _BROKERS:
            error = MISMATCHED_ENDPOINT_TYPE if kind == _CONTROLLERS else UNSUPPORTED_ENDPOINT_TYPE
            return {"error_code": error, "endpoint_type": kind, "cluster_id": "", "brokers": []}
        return {
            "cluster_id": self._cluster_id,
            "controller_id": NODE,
            "brokers": [self._broker() | {"broker_id": NODE, "is_fenced": False}],
            "cluster_authorized_operations": _DESCRIBE if request.include_cluster_authorized_operations else _NO_BITS,
        }

    def find_coordinator(self, request: Any, asked: RequestContext) -> Values:
        """Answer FindCoordinator: of groups and transactions it is this broker; there is none of share partitions."""
        kind, keys = getattr(request, "key_type", _GROUP_KEY), getattr(request, "coordinator_keys", ())
        refused = _coordinator_error(kind, asked.version)

        def found(key: str) -> dict[str, Any]:
            denied = not refused and not asked.may(ANY_PERMISSION, key.encode())
            error = _DENIED[kind] if denied else refused
            host, port = ("", -1) if error else self.address
            node = NO_NODE if error else NODE
            return {"error_code": error, "error_message": None, "node_id": node, "host": host, "port": port}

        if asked.version < _KEYS_SINCE:
            return found(request.key)
        return {"coordinators": Lazy(len(keys), (found(key) | {"key": key} for key in keys))}

    def describe_topic_partitions(self, request: Any, asked: RequestContext) -> Steps[Values]:
        """Answer DescribeTopicPartitions, in the order of names and from the cursor on."""
        limit = max(1, min(request.response_partition_limit, _MOST_PARTITIONS))
        cursor, first = request.cursor, 0
        if cursor is not None:
            first = max(cursor.partition_index, 0)
        names: set[str] = set()
        for name in [topic.name for topic in request.topics] or map(bytes.decode, self._listed(asked)):
            names.add(name)
            yield 0
        heap = [name for name in names if cursor is None or name >= cursor.topic_name]
        heapify(heap)  # takes 8 ms for 200,000 names in one step; sorting them takes 49 ms
        topics: list[Values] = []
        while heap:
            yield 0
            name = heappop(heap)
            begin = first if cursor is not None and name == cursor.topic_name else 0
            topic = self._named(name)
            numbers = topic["partitions"][begin : begin + limit]
            if limit == 0:
                return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": begin}}
            partitions = encoded_partitions(numbers, DESCRIBE_TOPIC_PARTITIONS, asked.version)
            topics.append(topic | {"partitions": partitions})
            limit -= len(numbers)
            if begin + len(numbers) < len(topic["partitions"]):
                next_cursor = {"topic_name": name, "partition_index": begin + len(numbers)}
                return {"topics": topics, "next_cursor": next_cursor}
        return {"topics": topics, "next_cursor": None}

    def produce(self, request: Any, _asked: RequestContext) -> Values:
        """Answer Produce: nobody may write messages here.

        It is there because librdkafka fetches only from brokers that it could produce to.
        """
        if request.acks == 0:
            raise wire.Malformed("a Produce that wants no answer")  # refused, a broker hangs up too
        return {"responses": Lazy(len(request.topic_data), map(_unwritable, request.topic_data))}

    async def list_offsets(self, request: Any, asked: RequestContext) -> Values:
        """Answer ListOffsets: where logs begin and end, or may; of our own log also what was written since a time."""
        topics = []
        for topic in request.topics:
            partitions: Lazy | list[Values]
            if topic.name == OFFSETS_TOPIC and asked.client.may_read_log():
                isolation_level = getattr(request, "isolation_level", 0)
                partitions = await self._reads.ends(topic.partitions, isolation_level, asked.version)
            else:
                partitions = Lazy(len(topic.partitions), self._all_ends(topic.name, topic.partitions))
            topics.append({"name": topic.name, "partitions": partitions})
        return {"topics": topics}

    def _all_ends(self, name: str, partitions: Sequence[Any]) -> Iterator[Values]:
        for of in partitions:
            if name == OFFSETS_TOPIC:  # which this client may not read
                yield {"error_code": TOPIC_AUTHORIZATION_FAILED, "partition_index": of.partition_index}
            else:
                yield self._ends(name, of)

    def _ends(self, name: str, asked: Any) -> Values:
        found = {
            "partition_index": asked.partition_index,
            "error_code": NONE,
            "timestamp": _NO_TIMESTAMP,
            "offset": _NO_OFFSET,
            "leader_epoch": _NO_EPOCH,
        }
        if not self._topics.has_partition(name.encode(), asked.partition_index):
            return found | {"error_code": UNKNOWN_TOPIC_OR_PARTITION}
        known = self._store.log_ends(name.encode(), asked.partition_index)
        first, end = known or (_NO_OFFSET, MAX_OFFSET)
        if asked.timestamp == LATEST:
            return found | {"offset": end}
        if asked.timestamp == EARLIEST:
            return found | {"offset": first}
        return found | {"error_code": UNSUPPORTED_FOR_MESSAGE_FORMAT} if known and asked.timestamp >= 0 else found

    def _listed(self, asked: RequestContext) -> list[bytes]:
        """Return the topics that a request for all topics gets: they tell what all groups read.

        So only a principal that may read all groups gets them. A topic that a request names is described to everyone
        who is let in: clients need it before they can commit.
        """
        return self._topics.known() if asked.client.access.may_read_log() else []

    def _broker(self) -> dict[str, Any]:
        host, port = self.address
        return {"node_id": NODE, "host": host, "port": port}

    def _most_described(self, topics: Sequence[Values]) -> int | None:
        """Return of how many partitions of each topic, at most, a response tells; None for all.

        Where any topic is there and its partitions are too many, the first of each are described: so a response has no
        more than MOST_DESCRIBED, and one of each topic, whatever was committed to.
        """
        too_many = self._topics.any and sum(len(topic["partitions"]) for topic in topics) > MOST_DESCRIBED
        return max(1, MOST_DESCRIBED // len(topics)) if too_many else None

    def _asked_topic(self, asked: Any) -> dict[str, Any]:
        if asked.name is not None:
            return self._named(asked.name)
        name = self._topics.name_of(asked.topic_id.bytes if asked.topic_id else ZERO_UUID)
        if name is not None:
            return self._topic(name)
        return {"error_code": UNKNOWN_TOPIC_ID, "name": None, "topic_id": asked.topic_id, "partitions": []}

    def _named(self, text: str) -> dict[str, Any]:
        """Describe the topic of a name a client gives, as `_topic` does."""
        name = text.encode()
        error = UNKNOWN_TOPIC_OR_PARTITION if self._topics.partitions(name) == 0 else NONE
        if not _NAME.fullmatch(text):
            error = INVALID_TOPIC_EXCEPTION
        if error:
            return {"error_code": error, "name": text, "topic_id": None, "partitions": []}
        return self._topic(name)

    def _topic(self, name: bytes) -> dict[str, Any]:
        """Describe a topic, with nothing of its partitions but their numbers."""
        return {
            "error_code": NONE,
            "name": name.decode(),
            "topic_id": uuid.UUID(bytes=self._topics.id_of(name)),
            "is_internal": name == INTERNAL,
            "partitions": range(self._topics.partitions(name)),
        }


def _invalid_topic(asked: Any) -> dict[str, Any]:
    """Answer for a topic of a Metadata that a version does not allow; its responses have no null for a name."""
    return {"error_code": INVALID_REQUEST, "name": asked.name or "", "topic_id": asked.topic_id, "partitions": ()}


def _unwritable(topic: Any) -> Values:
    """Answer for a topic of a Produce; it comes by name or by id."""
    refused = {"error_code": TOPIC_AUTHORIZATION_FAILED, "base_offset": _NO_OFFSET, "record_errors": ()}
    partitions = Lazy(len(topic.partition_data), (refused | {"index": of.index} for of in topic.partition_data))
    names = {"name": getattr(topic, "name", None), "topic_id": getattr(topic, "topic_id", None)}
    return names | {"partition_responses": partitions}


def _coordinator_error(key_type: int, version: int) -> int:
    if key_type in {_GROUP_KEY, _TRANSACTION_KEY}:
        return NONE
    if key_type == _SHARE_KEY and version >= _SHARE_KEYS_SINCE:
        return COORDINATOR_NOT_AVAILABLE
    return INVALID_REQUEST
