"""Writes of jobs: record batches that go into the log only if their groups are as the job has seen them."""

import asyncio
import struct
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from aiokafka.record.memory_records import MemoryRecords

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.audit.headers import HEADERS, PRINCIPAL, WHAT
from offsetlake.kafka.batches.writer import Batch
from offsetlake.kafka.records.coordinator_records import OffsetsRecordType
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.log.writer.append_protocol import WRITTEN_SINCE
from offsetlake.log.writer.appender import Appender
from offsetlake.serve.protocol import wire
from offsetlake.serve.storage.store import VALUE, Store, key

_MAGIC_AT, _MAGIC = 16, 2
_CODEC_AT, _CODEC_MASK = 22, 0x07  # in the lower byte of the attributes
_TYPE, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_OFFSET_AND_EPOCH, _OFFSET = struct.Struct(">qi"), struct.Struct(">q")
_V1, _V3, _V4 = 1, 3, 4
_TOPIC_ID_TAG = 0
_WHOLE_GROUPS = {
    OffsetsRecordType.GROUP_METADATA,
    OffsetsRecordType.CONSUMER_GROUP_METADATA,
    OffsetsRecordType.STREAMS_GROUP_METADATA,
}
_PARTS_OF_GROUPS = {
    OffsetsRecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
    OffsetsRecordType.CONSUMER_GROUP_PARTITION_METADATA,
    OffsetsRecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
    OffsetsRecordType.STREAMS_GROUP_TOPOLOGY,
}


class Committed(NamedTuple):
    """The value of an offset."""

    name: bytes  # as `offsetlake.serve.storage.store.key` makes it
    offset: int
    epoch: int
    metadata: bytes
    topic_id: bytes


class Gone(NamedTuple):
    """The tombstone of an offset."""

    topic: bytes
    partition: int


class GroupGone(NamedTuple):
    """A tombstone of a group; `whole`: that of the group itself, not of a part of it."""

    whole: bool


class GroupBatch(NamedTuple):
    """A batch and what its records say, all of one group; `principal` as its headers have it, None without."""

    group: bytes
    batch: Batch
    records: list[Committed | Gone | GroupGone]
    principal: str | None

    def serve(self, store: Store, first: int) -> None:
        """Have it served, now that its first record is in the log for good."""
        at = first
        for kind, alike in groupby(self.records, type):
            run = list(alike)
            last = at + len(run) - 1
            if kind is Committed:
                values = {
                    of.name: VALUE.pack(of.offset, of.epoch, of.topic_id) + of.metadata
                    for of in run
                    if isinstance(of, Committed)
                }
                store.commit(self.group, values, last)
            elif kind is Gone:
                store.delete_offsets(self.group, [(of.topic, of.partition) for of in run if isinstance(of, Gone)], last)
            elif any(of.whole for of in run if isinstance(of, GroupGone)):
                store.delete_group(self.group, last)
            at = last + 1


def read_batch(data: bytes) -> GroupBatch:
    """Read a batch as `batch_writer.record_batch` makes them of what `batch_writer` encodes.

    Raises Malformed, struct.error, IndexError, ValueError or CorruptRecordException where it is anything else.
    """
    batches = MemoryRecords(data)
    batch = batches.next_batch()
    if batch is None or batches.has_next() or data[_MAGIC_AT] != _MAGIC or batches.size_in_bytes() != len(data):
        raise wire.Malformed("not one record batch")
    if data[_CODEC_AT] & _CODEC_MASK:
        raise wire.Malformed("a record batch that is compressed: its records could have any size")
    if not batch.validate_crc() or batch.is_control_batch or batch.is_transactional or batch.base_offset:
        raise wire.Malformed("a record batch that is damaged, or of a kind that jobs do not write")
    groups: set[bytes] = set()
    records: list[Committed | Gone | GroupGone] = []
    principal: str | None = None
    for number, record in enumerate(batch):
        if record.offset != number:
            raise wire.Malformed("a record out of its place")
        if record.headers:
            principal = _principal(record.headers, number)
        group, said = _read_record(record.key, record.value)
        groups.add(group)
        records.append(said)
    if len(groups) != 1:
        raise wire.Malformed(f"a record batch of {len(groups)} groups")
    return GroupBatch(groups.pop(), Batch(bytearray(data), len(records)), records, principal)


def _principal(headers: Sequence[tuple[str, bytes | None]], number: int) -> str:
    """Read who does it; only audit headers are allowed, each once and on the first record."""
    audit = {name: value for name, value in headers if value is not None}
    if number or len(audit) != len(headers) or not {WHAT, PRINCIPAL} <= audit.keys() <= HEADERS:
        raise wire.Malformed("headers other than those of an audit event")
    return audit[PRINCIPAL].decode()


def _read_record(data: bytes | None, value: bytes | None) -> tuple[bytes, Committed | Gone | GroupGone]:
    if data is None:
        raise wire.Malformed("a record without a key")
    cursor = wire.Cursor(data, 0, flexible=False)
    (record_type,) = cursor.unpack(_TYPE)
    group = cursor.name()
    said: Committed | Gone | GroupGone
    if record_type == OffsetsRecordType.OFFSET_COMMIT:
        topic = cursor.name()
        (partition,) = cursor.unpack(_INT32)
        said = Gone(topic, partition) if value is None else _committed(key(topic, partition), value)
    elif value is None and (record_type in _WHOLE_GROUPS or record_type in _PARTS_OF_GROUPS):
        said = GroupGone(record_type in _WHOLE_GROUPS)
    else:
        raise wire.Malformed(f"a record of type {record_type}")
    cursor.end()
    return group, said


def _committed(name: bytes, value: bytes) -> Committed:
    (version,) = _TYPE.unpack_from(value)
    cursor = wire.Cursor(value, _TYPE.size, flexible=version == _V4)
    if version == _V1:
        (offset,), epoch = cursor.unpack(_OFFSET), -1
    elif version in {_V3, _V4}:
        offset, epoch = cursor.unpack(_OFFSET_AND_EPOCH)
    else:
        raise wire.Malformed(f"an offset of version {version}")
    metadata = cursor.string() or b""
    cursor.raw(16 if version == _V1 else 8)  # times
    topic_id = _topic_id(cursor) if version == _V4 else ZERO_UUID
    cursor.end()
    return Committed(name, offset, epoch, metadata, topic_id)


def _topic_id(cursor: wire.Cursor) -> bytes:
    topic_id = ZERO_UUID
    for _ in range(cursor.varint()):
        tag, field = cursor.varint(), cursor.raw(cursor.varint())
        if tag != _TOPIC_ID_TAG or len(field) != len(ZERO_UUID):
            raise wire.Malformed(f"tag {tag} of {len(field)} bytes in an offset")
        topic_id = field
    return topic_id


class Conditional:
    """Batches for one log partition; of each the log offset it got is told, WRITTEN_SINCE where it got none."""

    alone = True

    def __init__(
        self, partition: int, looked_up_to: int, batches: list[GroupBatch], store: Store, done: asyncio.Future[bytes]
    ) -> None:
        self.partition, self._looked_up_to = partition, looked_up_to
        self._batches, self._store, self._done = batches, store, done
        self._going: list[bool] = []

    def batches(self) -> Sequence[Batch]:
        """Give the batches of which the groups are as they were when the log was looked up to its offset."""
        self._going = [self._store.newest(each.group) < self._looked_up_to for each in self._batches]
        return [each.batch for each, goes in zip(self._batches, self._going, strict=True) if goes]

    def written(self, firsts: list[int]) -> None:
        """Serve what was written, and tell where it stands."""
        places, told = iter(firsts), []
        for each, goes in zip(self._batches, self._going, strict=True):
            told.append(next(places) if goes else WRITTEN_SINCE)
            if goes:
                each.serve(self._store, told[-1])
        if not self._done.cancelled():
            self._done.set_result(struct.pack(f">{len(told)}q", *told))

    def failed(self, error: LogUnavailable) -> None:
        """Tell why nothing was written."""
        if not self._done.cancelled():
            self._done.set_exception(error)


class ReadLogEnd:
    """Tells where a log partition ends once its turn has come: all below is served then."""

    alone = True

    def __init__(self, partition: int, appender: Appender, done: asyncio.Future[int]) -> None:
        self.partition, self._appender, self._done = partition, appender, done

    def batches(self) -> Sequence[Batch]:
        """Write nothing."""
        return ()

    def written(self, _firsts: list[int]) -> None:
        """Tell the end."""
        try:
            end = self._appender.end(self.partition)
        except LogUnavailable as error:
            self.failed(error)
        else:
            if not self._done.cancelled():
                self._done.set_result(end)

    def failed(self, error: LogUnavailable) -> None:
        """Tell why there is no telling."""
        if not self._done.cancelled():
            self._done.set_exception(error)
