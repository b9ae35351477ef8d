"""The APIs about the cluster and its topics, as answered by one broker whose only messages are those of the log.

As a broker of a cluster, it describes the topics and brokers of the cluster, and leads only the log.

ListOffsets returns the start and end offsets that table `log_ends` of the lake contains: those that a live cluster
returned to the latest run over it. The offset for a timestamp is unknown, and is answered with an error if the end is
known: tools interpret -1 as "nothing was written since", and `kafka-consumer-groups --to-datetime` would commit the
end.

For other topics nothing is known. Their end offset is answered with OFFSET_NOT_AVAILABLE (78): any number would be a
lag in monitoring. DescribeTopicPartitions names no leader of their partitions, so that `kafka-consumer-groups
--describe` of Kafka 4.2 and later, which requests the end offsets of partitions with a leader only, shows the committed
offsets and `-` as the end and the lag. Metadata does name a leader, because consumers need one to get any answer about
a partition. The start offset is -1, which tools take as unknown, too.

`kafka-consumer-groups --reset-offsets` requests the start and then the end of the same partitions, and adjusts the new
offset to this range. It gets MAX_OFFSET as the end, so that `--to-offset` and `--shift-by` of versions before 4.2 work.
Later ones refuse partitions without a leader.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop
from itertools import chain, groupby
from typing import Any

from offsetlake.auth.acl import ANY_PERMISSION
from offsetlake.kafka.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    MISMATCHED_ENDPOINT_TYPE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_NOT_AVAILABLE,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_ENDPOINT_TYPE,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
)
from offsetlake.kafka.placement import is_share_partition_key
from offsetlake.log.positions import OFFSETS_TOPIC
from offsetlake.serve.apis.log_reads import EARLIEST, LATEST, LogReads
from offsetlake.serve.apis.topic_answers import (
    described_topic,
    encoded,
    invalid_topic,
    listed,
    named_topic,
    partition_limit,
    requested_topic,
)
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.handlers import Handlers, at_once, awaited
from offsetlake.serve.protocol import wire
from offsetlake.serve.protocol.api_keys import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
)
from offsetlake.serve.protocol.described_partitions import NO_LEADER, NODE, encoded_partitions
from offsetlake.serve.protocol.encoding import Encoded, Lazy, Values
from offsetlake.serve.protocol.topic_descriptions import TopicTable
from offsetlake.serve.protocol.topics import INTERNAL, MAX_OFFSET, Topics
from offsetlake.serve.steps import Steps
from offsetlake.serve.storage.store import Store

NO_NODE = -1
TRANSACTION_KEY = 1
"""The type of transactional ids in FindCoordinator."""

_GROUP_KEY, _SHARE_KEY, _SHARE_KEYS_SINCE = 0, 2, 6
_DENIED = {_GROUP_KEY: GROUP_AUTHORIZATION_FAILED, TRANSACTION_KEY: TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
_BY_ID_SINCE = 12  # version of Metadata that can identify topics by id; the fields exist since version 10
_KEYS_SINCE = 4  # version of FindCoordinator with many keys
_BROKERS, _CONTROLLERS = 1, 2
_MAX_PAGE_PARTITIONS = 2000  # of DescribeTopicPartitions: max.request.partition.size.limit of a broker
_NO_TIMESTAMP, _NO_OFFSET, _NO_EPOCH = -1, -1, -1
_NO_BITS = -(2**31)
_DESCRIBE = 1 << 8
_READ_AND_DESCRIBE = 1 << 3 | _DESCRIBE
_KAFKA_TOOLS = b"adminclient-"  # the beginning of the client ids of Kafka's command-line tools


class ClusterApis:
    """Answers Metadata, FindCoordinator, DescribeCluster, DescribeTopicPartitions, ListOffsets and Produce."""

    def __init__(self, store: Store, topics: Topics, reads: LogReads, cluster_id: Callable[[], str | None]) -> None:
        self._store, self._topics, self.reads, self.cluster_id = store, topics, reads, cluster_id
        self.address: tuple[str, int]

    def handlers(self) -> Handlers:
        """Return the handlers by API key, without those of Metadata and FindCoordinator, which features may refine."""
        return {
            PRODUCE: at_once(self.produce),
            DESCRIBE_CLUSTER: at_once(self.describe_cluster),
            DESCRIBE_TOPIC_PARTITIONS: at_once(self.describe_topic_partitions),
            LIST_OFFSETS: awaited(self.reads.tasks, self.list_offsets),
        }

    def metadata(self, request: Any, context: RequestContext) -> Steps[Values]:
        """Answer Metadata: this broker, and the requested topics, or those of `_listed` if all are requested."""
        table, topics = self._topics.now(), dict[Any, dict[str, Any]]()
        if request.topics is None or (context.version == 0 and not request.topics):
            for name in (yield from listed(table, context.client)):
                topics[name] = described_topic(table, name)
                yield 0
        elif context.version < _BY_ID_SINCE and any(
            topic.name is None or getattr(topic, "topic_id", None) for topic in request.topics
        ):
            topics = dict(enumerate(map(invalid_topic, request.topics)))
        else:
            for topic in request.topics:
                key = topic.name, getattr(topic, "topic_id", None)
                topics[key] = topics.get(key) or requested_topic(self._topics, table, topic, context.client)
                yield 0
        limit = partition_limit(table, [*topics.values()])
        operations = {}
        if getattr(request, "include_topic_authorized_operations", False):
            operations = {"topic_authorized_operations": _READ_AND_DESCRIBE}
        described_topics = (
            topic | {"partitions": encoded(table, topic, limit, METADATA, context.version)} | operations
            for topic in topics.values()
        )
        with_operations = getattr(request, "include_cluster_authorized_operations", False)
        return {
            "brokers": self._brokers(table),
            "cluster_id": self.cluster_id(),
            "controller_id": table.controller_id,
            "topics": Lazy(len(topics), described_topics),
            "cluster_authorized_operations": _DESCRIBE if with_operations else _NO_BITS,
        }

    def describe_cluster(self, request: Any, _context: RequestContext) -> Values:
        """Answer DescribeCluster."""
        kind = getattr(request, "endpoint_type", _BROKERS)
        if kind != _BROKERS:
            error = MISMATCHED_ENDPOINT_TYPE if kind == _CONTROLLERS else UNSUPPORTED_ENDPOINT_TYPE
            return {"error_code": error, "endpoint_type": kind, "cluster_id": "", "brokers": []}
        table = self._topics.now()
        brokers = [broker | {"broker_id": broker["node_id"], "is_fenced": False} for broker in self._brokers(table)]
        return {
            "cluster_id": self.cluster_id() or "",
            "controller_id": table.controller_id,
            "brokers": brokers,
            "cluster_authorized_operations": _DESCRIBE if request.include_cluster_authorized_operations else _NO_BITS,
        }

    def find_coordinator(self, request: Any, context: RequestContext) -> Values:
        """Answer FindCoordinator: this broker; brokers of a cluster coordinate its share partitions."""
        kind, keys = getattr(request, "key_type", _GROUP_KEY), getattr(request, "coordinator_keys", ())
        key_type_error = self._coordinator_error(kind, context)

        def coordinator(key: str) -> dict[str, Any]:
            error = key_type_error or _key_error(kind, key, context) or self._not_read(kind, key)
            host, port = ("", -1) if error else self.address
            node = NO_NODE if error else self._topics.node
            return {"error_code": error, "error_message": None, "node_id": node, "host": host, "port": port}

        if context.version < _KEYS_SINCE:
            return coordinator(request.key)
        return {"coordinators": Lazy(len(keys), (coordinator(key) | {"key": key} for key in keys))}

    def _not_read(self, kind: int, key: str) -> int:
        """Return COORDINATOR_NOT_AVAILABLE for a group in a log partition that the folder of the log lacks."""
        is_group = kind == _GROUP_KEY and not self._store.loading
        return COORDINATOR_NOT_AVAILABLE if is_group and self._store.unavailable(key.encode()) else NONE

    def _coordinator_error(self, key_type: int, context: RequestContext) -> int:
        """Return the error code for all keys of a type, NONE if it depends on the key."""
        if key_type in _DENIED:
            return NONE
        if key_type != _SHARE_KEY or context.version < _SHARE_KEYS_SINCE:
            return INVALID_REQUEST
        if not context.client.access.may_act_as_broker():
            return CLUSTER_AUTHORIZATION_FAILED
        return NONE if self._topics.leads else COORDINATOR_NOT_AVAILABLE

    def describe_topic_partitions(self, request: Any, context: RequestContext) -> Steps[Values]:
        """Answer DescribeTopicPartitions, in the order of topic names, from the cursor on."""
        limit = max(1, min(request.response_partition_limit, _MAX_PAGE_PARTITIONS))
        cursor, first, table = request.cursor, 0, self._topics.now()
        if cursor is not None:
            first = max(cursor.partition_index, 0)
        names: set[str] = set()
        requested = [topic.name for topic in request.topics]
        for name in requested or map(bytes.decode, (yield from listed(table, context.client))):
            names.add(name)
            yield 0
        heap = [name for name in names if cursor is None or name >= cursor.topic_name]
        heapify(heap)  # takes 8 ms for 200,000 names in one step; sorting them takes 49 ms
        topics: list[Values] = []
        while heap:
            yield 0
            name = heappop(heap)
            begin = first if cursor is not None and name == cursor.topic_name else 0
            topic = named_topic(self._topics, table, name, context.client)
            numbers = topic["partitions"][begin : begin + limit]
            if limit == 0:
                return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": begin}}
            partitions = self._described_partitions(table, name.encode(), numbers, context)
            topics.append(topic | {"partitions": partitions})
            limit -= len(numbers)
            if begin + len(numbers) < len(topic["partitions"]):
                next_cursor = {"topic_name": name, "partition_index": begin + len(numbers)}
                return {"topics": topics, "next_cursor": next_cursor}
        return {"topics": topics, "next_cursor": None}

    def _described_partitions(self, table: TopicTable, name: bytes, numbers: range, context: RequestContext) -> Encoded:
        """Return encoded partitions; without a cluster, those whose end offsets are unknown have no leader."""
        api, version = DESCRIBE_TOPIC_PARTITIONS, context.version
        if not self._topics.leads or context.client.checks_topics or name == INTERNAL:
            return table.encoded_partitions(name, numbers, api, version)
        runs = groupby(numbers, lambda number: NODE if self._store.log_ends(name, number) else NO_LEADER)
        pieces = (encoded_partitions([*run], api, version, leader).pieces for leader, run in runs)
        return Encoded(len(numbers), chain.from_iterable(pieces))

    def produce(self, request: Any, _context: RequestContext) -> Values:
        """Answer Produce with TOPIC_AUTHORIZATION_FAILED (29), or as a broker with NOT_LEADER_OR_FOLLOWER (6).

        The API is supported because librdkafka fetches only from brokers that support Produce.
        """
        if request.acks == 0:
            raise wire.Malformed("a Produce request with acks=0 is refused")  # a broker closes the connection too
        error = TOPIC_AUTHORIZATION_FAILED if self._topics.leads else NOT_LEADER_OR_FOLLOWER
        if not self._topics.leads:  # it was placed here: the sooner that is noticed, the sooner it is moved away
            for topic in request.topic_data:
                id_ = getattr(topic, "topic_id", None)
                self._topics.request(topic.name.encode() if id_ is None else id_.bytes)
        refused = (_refuse_produce(topic, error) for topic in request.topic_data)
        return {"responses": Lazy(len(request.topic_data), refused)}

    async def list_offsets(self, request: Any, context: RequestContext) -> Values:
        """Answer ListOffsets: start and end offsets as the module describes; for the log itself, timestamps too."""
        unlimited, topics = _is_end_of_range(request, context), []
        for topic in request.topics:
            partitions: Lazy | list[Values]
            if topic.name == OFFSETS_TOPIC and context.client.may_read_log():
                isolation_level = getattr(request, "isolation_level", 0)
                partitions = await self.reads.ends(topic.partitions, isolation_level, context.version)
            else:
                partitions = Lazy(
                    len(topic.partitions), self._all_ends(topic.name, topic.partitions, unlimited=unlimited)
                )
            topics.append({"name": topic.name, "partitions": partitions})
        return {"topics": topics}

    def _all_ends(self, name: str, partitions: Sequence[Any], *, unlimited: bool) -> Iterator[Values]:
        for partition in partitions:
            if name == OFFSETS_TOPIC:  # which this client may not read
                yield {"error_code": TOPIC_AUTHORIZATION_FAILED, "partition_index": partition.partition_index}
            else:
                yield self._ends(name, partition, unlimited=unlimited)

    def _ends(self, name: str, partition: Any, *, unlimited: bool) -> Values:
        answer = {
            "partition_index": partition.partition_index,
            "error_code": NONE,
            "timestamp": _NO_TIMESTAMP,
            "offset": _NO_OFFSET,
            "leader_epoch": _NO_EPOCH,
        }
        if not self._topics.has_partition(name.encode(), partition.partition_index):
            return answer | {"error_code": UNKNOWN_TOPIC_OR_PARTITION}
        if not self._topics.leads:
            return answer | {"error_code": NOT_LEADER_OR_FOLLOWER}
        known = self._store.log_ends(name.encode(), partition.partition_index)
        if partition.timestamp == LATEST:
            if known:
                return answer | {"offset": known[1]}
            return answer | ({"offset": MAX_OFFSET} if unlimited else {"error_code": OFFSET_NOT_AVAILABLE})
        if partition.timestamp == EARLIEST:
            return answer | {"offset": known[0] if known else _NO_OFFSET}
        # A broker returns this error for a log whose records have no timestamps.
        return answer | ({"error_code": UNSUPPORTED_FOR_MESSAGE_FORMAT} if partition.timestamp >= 0 else {})

    def _brokers(self, table: TopicTable) -> list[dict[str, Any]]:
        (host, port), node = self.address, self._topics.node
        others = [broker._asdict() for broker in table.brokers if broker.node_id != node]
        return [*others, {"node_id": node, "host": host, "port": port}]


def _is_end_of_range(request: Any, context: RequestContext) -> bool:
    """Check whether one of Kafka's tools requests the ends of partitions whose starts it has just requested."""
    client, before = context.client, context.client.started_range
    client.started_range = None
    if not (context.client_id or b"").startswith(_KAFKA_TOOLS):
        return False
    partitions = hash(
        frozenset((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    )
    timestamps = {each.timestamp for topic in request.topics for each in topic.partitions}
    if timestamps == {EARLIEST}:
        client.started_range = partitions
    return timestamps == {LATEST} and partitions == before


def _refuse_produce(topic: Any, error: int) -> Values:
    """Refuse a topic in Produce, which is identified by name or by id."""
    refused = {"error_code": error, "base_offset": _NO_OFFSET, "record_errors": ()}
    data = topic.partition_data
    partitions = Lazy(len(data), (refused | {"index": partition.index} for partition in data))
    names = {"name": getattr(topic, "name", None), "topic_id": getattr(topic, "topic_id", None)}
    return names | {"partition_responses": partitions}


def _key_error(key_type: int, key: str, context: RequestContext) -> int:
    """Return the error code for a key of a type that has a coordinator."""
    if key_type == _SHARE_KEY:
        return NONE if is_share_partition_key(key) else INVALID_REQUEST
    return NONE if context.may(ANY_PERMISSION, key.encode()) else _DENIED[key_type]
