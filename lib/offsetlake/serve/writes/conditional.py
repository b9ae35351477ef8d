"""Conditional writes of jobs: a record batch is appended only if its group was not written to since the job read it."""

import asyncio
import struct
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from aiokafka.record.memory_records import MemoryRecords

from offsetlake.coordinator.steps import Record
from offsetlake.errors import LogUnavailable
from offsetlake.kafka.audit.headers import HEADERS, PRINCIPAL, WHAT
from offsetlake.kafka.batches.writer import NO_HEADERS, Batch, Headers
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC, OffsetsRecordType, decode_record
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.log.writer.append_protocol import WRITTEN_SINCE
from offsetlake.log.writer.appender import Appender
from offsetlake.serve.protocol import wire
from offsetlake.serve.storage.memtable import VALUE
from offsetlake.serve.storage.store import Store, key

_MAGIC_POSITION, _MAGIC = 16, 2
_CODEC_POSITION, _CODEC_MASK = 22, 0x07  # in the lower byte of the attributes
_TYPE, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_OFFSET_AND_EPOCH, _OFFSET = struct.Struct(">qi"), struct.Struct(">q")
_V1, _V3, _V4 = 1, 3, 4
_TOPIC_ID_TAG = 0
_REBALANCING = {"PreparingRebalance", "CompletingRebalance"}
_GROUP_RECORD_TYPES = {
    OffsetsRecordType.GROUP_METADATA,
    OffsetsRecordType.CONSUMER_GROUP_METADATA,
    OffsetsRecordType.STREAMS_GROUP_METADATA,
}
_GROUP_PART_RECORD_TYPES = {
    OffsetsRecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
    OffsetsRecordType.CONSUMER_GROUP_PARTITION_METADATA,
    OffsetsRecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
    OffsetsRecordType.STREAMS_GROUP_TOPOLOGY,
}


class OffsetValue(NamedTuple):
    """The value of an offset; `key` is `offsetlake.serve.storage.store.key`."""

    key: bytes
    offset: int
    epoch: int
    metadata: bytes
    topic_id: bytes


class OffsetTombstone(NamedTuple):
    """The tombstone of an offset."""

    topic: bytes
    partition: int


class GroupTombstone(NamedTuple):
    """A tombstone of the group itself (`whole`), or of a part of its metadata."""

    whole: bool


JobRecord = OffsetValue | OffsetTombstone | GroupTombstone


class GroupBatch(NamedTuple):
    """A record batch of one group, with its decoded records and its audit headers.

    `principal` is that of the audit headers, None without.
    """

    group: bytes
    batch: Batch
    records: list[JobRecord]
    principal: str | None
    headers: Headers

    def offset_records(self) -> tuple[Record, ...]:
        """Return the records as the core of the coordinator writes them.

        Raises:
            Malformed: There are other records than offsets.
        """
        if any(isinstance(record, GroupTombstone) for record in self.records):
            raise wire.Malformed("records other than offsets are not accepted")
        batch = MemoryRecords(bytes(self.batch.data)).next_batch() or ()
        decoded = (decode_record(OFFSETS_TOPIC, record.key or b"", record.value) for record in batch)
        return tuple(Record(OffsetsRecordType.OFFSET_COMMIT, record.key, record.value) for record in decoded)

    @property
    def deletes_group(self) -> bool:
        """Whether the batch deletes the group itself."""
        return any(isinstance(record, GroupTombstone) and record.whole for record in self.records)

    def serve(self, store: Store, first: int) -> None:
        """Apply the durable batch to the store; `first` is the log offset of its first record."""
        log_offset = first
        for kind, records in groupby(self.records, type):
            run = list(records)
            last = log_offset + len(run) - 1
            if kind is OffsetValue:
                values = {
                    record.key: VALUE.pack(record.offset, record.epoch, record.topic_id) + record.metadata
                    for record in run
                    if isinstance(record, OffsetValue)
                }
                store.commit(self.group, values, last)
            elif kind is OffsetTombstone:
                partitions = [(record.topic, record.partition) for record in run if isinstance(record, OffsetTombstone)]
                store.delete_offsets(self.group, partitions, last)
            elif self.deletes_group:
                store.delete_group(self.group, last)
            log_offset = last + 1


def read_batch(data: bytes) -> GroupBatch:
    """Decode a record batch as `offsetlake.kafka.batches.writer` encodes it.

    Raises:
        Malformed, struct.error, IndexError, ValueError, CorruptRecordException: It is anything else.
    """
    batches = MemoryRecords(data)
    batch = batches.next_batch()
    if batch is None or batches.has_next() or data[_MAGIC_POSITION] != _MAGIC or batches.size_in_bytes() != len(data):
        raise wire.Malformed("expected exactly one record batch of magic 2")
    if data[_CODEC_POSITION] & _CODEC_MASK:
        raise wire.Malformed("compressed record batches are not accepted, as their decompressed size is unbounded")
    if not batch.validate_crc() or batch.is_control_batch or batch.is_transactional or batch.base_offset:
        raise wire.Malformed("the record batch is corrupt, transactional, a control batch, or has a base offset")
    groups: set[bytes] = set()
    records: list[JobRecord] = []
    principal, headers = None, NO_HEADERS
    for number, record in enumerate(batch):
        if record.offset != number:
            raise wire.Malformed(f"record {number} of the record batch has offset delta {record.offset}")
        if record.headers:
            principal = _principal(record.headers, number)
            headers = [(name, value) for name, value in record.headers if value is not None]
        group, job_record = _decode_record(record.key, record.value)
        groups.add(group)
        records.append(job_record)
    if len(groups) != 1:
        raise wire.Malformed(f"the record batch has records of {len(groups)} groups, expected one")
    return GroupBatch(groups.pop(), Batch(bytearray(data), len(records)), records, principal, headers)


def _principal(headers: Sequence[tuple[str, bytes | None]], number: int) -> str:
    """Return the principal; only audit headers are allowed, each once and on the first record."""
    audit = {name: value for name, value in headers if value is not None}
    if number or len(audit) != len(headers) or not {WHAT, PRINCIPAL} <= audit.keys() <= HEADERS:
        raise wire.Malformed("record headers other than audit headers on the first record are not accepted")
    return audit[PRINCIPAL].decode()


def _decode_record(data: bytes | None, value: bytes | None) -> tuple[bytes, JobRecord]:
    if data is None:
        raise wire.Malformed("a record has no key")
    cursor = wire.Cursor(data, 0, flexible=False)
    (record_type,) = cursor.unpack(_TYPE)
    group = cursor.name()
    record: JobRecord
    if record_type == OffsetsRecordType.OFFSET_COMMIT:
        topic = cursor.name()
        (partition,) = cursor.unpack(_INT32)
        name = key(topic, partition)
        record = OffsetTombstone(topic, partition) if value is None else _offset_value(name, value)
    elif value is None and (record_type in _GROUP_RECORD_TYPES or record_type in _GROUP_PART_RECORD_TYPES):
        record = GroupTombstone(record_type in _GROUP_RECORD_TYPES)
    else:
        raise wire.Malformed(f"records of type {record_type} are not accepted")
    cursor.end()
    return group, record


def _offset_value(name: bytes, value: bytes) -> OffsetValue:
    (version,) = _TYPE.unpack_from(value)
    cursor = wire.Cursor(value, _TYPE.size, flexible=version == _V4)
    if version == _V1:
        (offset,), epoch = cursor.unpack(_OFFSET), -1
    elif version in {_V3, _V4}:
        offset, epoch = cursor.unpack(_OFFSET_AND_EPOCH)
    else:
        raise wire.Malformed(f"an offset value has the unknown version {version}")
    metadata = cursor.string() or b""
    cursor.raw(16 if version == _V1 else 8)  # timestamps
    topic_id = _topic_id(cursor) if version == _V4 else ZERO_UUID
    cursor.end()
    return OffsetValue(name, offset, epoch, metadata, topic_id)


def _topic_id(cursor: wire.Cursor) -> bytes:
    topic_id = ZERO_UUID
    for _ in range(cursor.varint()):
        tag, field = cursor.varint(), cursor.raw(cursor.varint())
        if tag != _TOPIC_ID_TAG or len(field) != len(ZERO_UUID):
            raise wire.Malformed(f"an offset value has the unknown tag {tag} of {len(field)} bytes")
        topic_id = field
    return topic_id


class ConditionalWrite:
    """A write of batches to one log partition, each on condition that its group was not written to since `read_end`.

    The result is the log offset of the first record of each batch, WRITTEN_SINCE for a batch that was not appended.
    """

    exclusive = True

    def __init__(
        self, partition: int, read_end: int, batches: list[GroupBatch], store: Store, done: asyncio.Future[bytes]
    ) -> None:
        self.partition, self._read_end = partition, read_end
        self._batches, self._store, self._done = batches, store, done
        self._accepted: list[bool] = []
        self._deleted: set[bytes] = set()

    def batches(self) -> Sequence[Batch]:
        """Return the batches whose groups have no record at or after the log offset that the job had read up to.

        A group that has members by now, of which no record is in the log yet, is not deleted, nor changed meanwhile.
        """
        self._accepted = [self._may_append(batch) for batch in self._batches]
        self._deleted = {batch.group for batch, accepted in self._paired() if accepted and batch.deletes_group}
        self._store.deleting |= self._deleted
        return [batch.batch for batch, accepted in self._paired() if accepted]

    def _may_append(self, batch: GroupBatch) -> bool:
        store, group = self._store, batch.group
        if store.newest.of(group) >= self._read_end or store.has_queued_records(group):
            return False
        state = store.live[group].kind["state"] if group in store.live else "Empty"
        # Of a rebalance in progress the log, which the job has read, contains nothing.
        return not (state in _REBALANCING or (batch.deletes_group and state != "Empty"))

    def _paired(self) -> Iterator[tuple[GroupBatch, bool]]:
        return zip(self._batches, self._accepted, strict=True)

    def written(self, firsts: list[int]) -> None:
        """Serve the appended batches and answer with their log offsets."""
        log_offsets, results = iter(firsts), []
        for batch, accepted in self._paired():
            results.append(next(log_offsets) if accepted else WRITTEN_SINCE)
            if accepted:
                batch.serve(self._store, results[-1])
        self._store.deleting -= self._deleted
        if not self._done.cancelled():
            self._done.set_result(struct.pack(f">{len(results)}q", *results))

    def failed(self, error: LogUnavailable) -> None:
        """Answer with the error; nothing was appended."""
        self._store.deleting -= self._deleted
        if not self._done.cancelled():
            self._done.set_exception(error)


class ReadLogEnd:
    """A write of nothing that reads the end of a log partition when all records before that end are served."""

    exclusive = True

    def __init__(self, partition: int, appender: Appender, done: asyncio.Future[int]) -> None:
        self.partition, self._appender, self._done = partition, appender, done

    def batches(self) -> Sequence[Batch]:
        """Return no batches."""
        return ()

    def written(self, _firsts: list[int]) -> None:
        """Answer with the log end offset."""
        try:
            end = self._appender.end(self.partition)
        except LogUnavailable as error:
            self.failed(error)
        else:
            if not self._done.cancelled():
                self._done.set_result(end)

    def failed(self, error: LogUnavailable) -> None:
        """Answer with the error."""
        if not self._done.cancelled():
            self._done.set_exception(error)
