"""Writes the records of one step of a group to the log, and sends the replies of the step when they are durable."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from offsetlake.coordinator.steps import Record
from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches.writer import NO_HEADERS, Batch, Headers, record_batch
from offsetlake.kafka.error_codes import NONE, NOT_COORDINATOR
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC, OffsetsRecordType, encode_key, encode_value

_VALUE_VERSIONS = {OffsetsRecordType.GROUP_METADATA: 3}  # as brokers from 2.3 to 4.2 write it; of all others it is 0
_ASSIGNMENTS = ("assignedPartitions", "partitionsPendingRevocation")


def encoded_batch(records: Sequence[Record], timestamp_ms: int, headers: Headers = NO_HEADERS) -> Batch:
    """Return the records as one batch; the first one has the headers.

    Raises:
        ValueError: A text is too long for a record.
    """
    return record_batch(timestamp_ms, map(_encoded, records), headers)


def _encoded(record: Record) -> tuple[bytes, bytes | None]:
    key = encode_key(OFFSETS_TOPIC, record.type, record.key)
    if record.value is None:
        return key, None
    value = record.value
    if record.type == OffsetsRecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT:
        value = {**value, **{name: _with_unknown_epochs(value[name]) for name in _ASSIGNMENTS if value.get(name)}}
    return key, encode_value(OFFSETS_TOPIC, record.type, _version(record.type, value), value)


def _with_unknown_epochs(topics: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the topics of a current assignment, each with unknown assignment epochs (KIP-1251).

    Brokers of version 4.3 and later take the epoch of the member for unknown ones, but log an error if a record lacks
    the field (`Utils.assignmentFromTopicPartitions`). Older brokers skip it.
    """
    return [{**topic, "assignmentEpochs": None} for topic in topics]


def _version(record_type: OffsetsRecordType, value: Mapping[str, Any]) -> int:
    """Return the version of a value; that of an offset is the oldest one that can represent it."""
    if record_type == OffsetsRecordType.OFFSET_COMMIT:
        return 1 if "expireTimestamp" in value else 4 if "topicId" in value else 3
    return _VALUE_VERSIONS.get(record_type, 0)


class GroupWrite:
    """The records of one step of one group, unless it is `cancelled`.

    `done` is called with an error code, NONE if the records are durable, and with the log offsets of the first and the
    last record.
    """

    __slots__ = ("_batch", "_done", "cancelled", "partition")
    exclusive = False

    def __init__(self, partition: int, batch: Batch, done: Callable[[int, int, int], None]) -> None:
        self.partition, self._batch, self._done = partition, batch, done
        self.cancelled = False

    def batches(self) -> Sequence[Batch]:
        """Return the batch; none if the write was cancelled, because an earlier one of the group failed."""
        return () if self.cancelled else (self._batch,)

    def written(self, firsts: list[int]) -> None:
        """Report that the records are durable."""
        if not self.cancelled:
            self._done(NONE, firsts[0], firsts[0] + self._batch.records - 1)

    def failed(self, _error: LogUnavailable) -> None:
        """Report that the records were not written."""
        if not self.cancelled:
            self._done(NOT_COORDINATOR, -1, -1)
