"""DescribeProducers, OffsetForLeaderEpoch and DeleteRecords, which clients send to the leader of a partition.

They are answered for the log itself. In front of a cluster, brokers lead all other partitions; without one, this
process states that it leads them, and has none of their records.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from offsetlake.kafka.error_codes import (
    FENCED_LEADER_EPOCH,
    INVALID_TOPIC_EXCEPTION,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from offsetlake.log.disk.partition_reader import OpenTransaction, PartitionReader
from offsetlake.log.positions import OFFSETS_TOPIC
from offsetlake.serve.apis.log_reads import LogReads
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.handlers import Handlers, at_once, awaited
from offsetlake.serve.protocol.api_keys import DELETE_RECORDS, DESCRIBE_PRODUCERS, OFFSET_FOR_LEADER_EPOCH
from offsetlake.serve.protocol.encoding import Lazy, Values
from offsetlake.serve.protocol.topics import Topics, is_valid_name

_NO_EPOCH = _NO_OFFSET = -1


class PartitionRequests:
    """Answers these requests; `epoch` returns the current leader epoch of a partition of the log."""

    def __init__(self, topics: Topics, reads: LogReads, epoch: Callable[[int], int]) -> None:
        self._topics, self._reads, self._epoch = topics, reads, epoch

    def handlers(self) -> Handlers:
        """Return the handlers by API key."""
        tasks = self._reads.tasks
        return {
            DELETE_RECORDS: at_once(self.delete_records),
            DESCRIBE_PRODUCERS: awaited(tasks, self.describe_producers),
            OFFSET_FOR_LEADER_EPOCH: awaited(tasks, self.end_of_epoch),
        }

    async def describe_producers(self, request: Any, context: RequestContext) -> Values:
        """Answer DescribeProducers: the producers with an open transaction, none of a topic without records here."""
        topics = []
        for topic in request.topics:
            numbers = [*dict.fromkeys(topic.partition_indexes)]
            answers: Iterable[Values] = ({"error_code": INVALID_TOPIC_EXCEPTION} for _ in numbers)
            if is_valid_name(topic.name.encode()):
                answers = await self._answers(topic.name, numbers, context, _producers, elsewhere=NONE)
            topics.append({"name": topic.name, "partitions": _partitions("partition_index", numbers, answers)})
        return {"topics": topics}

    async def end_of_epoch(self, request: Any, context: RequestContext) -> Values:
        """Answer OffsetForLeaderEpoch."""
        topics = []
        for topic in request.topics:
            asked = {each.partition: each for each in topic.partitions}

            def end(number: int, reader: PartitionReader) -> Values:
                current, each = self._epoch(number), asked[number]  # noqa: B023 - it is called in this iteration
                if each.current_leader_epoch not in {_NO_EPOCH, current}:
                    fenced = each.current_leader_epoch < current
                    return {"error_code": FENCED_LEADER_EPOCH if fenced else UNKNOWN_LEADER_EPOCH}
                epoch, offset = reader.end_of_epoch(each.leader_epoch, current)
                return {"leader_epoch": epoch, "end_offset": offset}

            answers = await self._answers(topic.topic, [*asked], context, end)
            topics.append({"topic": topic.topic, "partitions": _partitions("partition", [*asked], answers)})
        return {"topics": topics}

    def delete_records(self, request: Any, context: RequestContext) -> Values:
        """Refuse DeleteRecords: a broker deletes no records of an internal topic on request either."""
        topics = [
            {"name": topic.name, "partitions": Lazy(len(topic.partitions), self._kept(topic, context))}
            for topic in request.topics
        ]
        return {"topics": topics}

    def _kept(self, topic: Any, context: RequestContext) -> Iterator[Values]:
        is_log = self._is_readable_log(topic.name, context)
        for partition in topic.partitions:
            number = partition.partition_index
            error = self._error(topic.name, number)
            if is_log and error == TOPIC_AUTHORIZATION_FAILED:
                error = INVALID_TOPIC_EXCEPTION
            yield {"partition_index": number, "low_watermark": _NO_OFFSET, "error_code": error}

    async def _answers(
        self,
        topic: str,
        numbers: Sequence[int],
        context: RequestContext,
        read: Callable[[int, PartitionReader], Values],
        elsewhere: int = TOPIC_AUTHORIZATION_FAILED,
    ) -> Iterable[Values]:
        if self._is_readable_log(topic, context):
            return await self._reads.answers(numbers, read)
        return ({"error_code": self._error(topic, number, elsewhere)} for number in numbers)

    def _is_readable_log(self, topic: str, context: RequestContext) -> bool:
        return topic == OFFSETS_TOPIC and context.client.may_read_log()

    def _error(self, topic: str, number: int, elsewhere: int = TOPIC_AUTHORIZATION_FAILED) -> int:
        """Return the error code for a partition of another topic, or of the log for a client that may not read it.

        It is `elsewhere` if this process states that it leads the partition, whose records are elsewhere.
        """
        if not self._topics.has_partition(topic.encode(), number):
            return UNKNOWN_TOPIC_OR_PARTITION
        if topic == OFFSETS_TOPIC:
            return TOPIC_AUTHORIZATION_FAILED
        return elsewhere if self._topics.leads else NOT_LEADER_OR_FOLLOWER


def _partitions(name: str, numbers: Sequence[int], answers: Iterable[Values]) -> Lazy:
    """Return answers with the numbers of their partitions, in the field with a name."""
    named = zip(numbers, answers, strict=True)
    return Lazy(len(numbers), ({"active_producers": (), **answer, name: number} for number, answer in named))


def _producers(_number: int, reader: PartitionReader) -> Values:
    """Return the producers with an open transaction; the log does not contain their sequence numbers."""
    return {"active_producers": [_producer(transaction) for transaction in reader.open_transactions()]}


def _producer(transaction: OpenTransaction) -> Values:
    return {
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "last_sequence": -1,
        "last_timestamp": transaction.last_timestamp,
        "coordinator_epoch": -1,
        "current_txn_start_offset": transaction.first,
    }
