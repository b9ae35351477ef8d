"""Encodes and decodes the records of `__share_group_state` in Kafka's format.

A server decodes millions of them at its start. The usual form, without unknown tagged fields, is decoded directly,
which takes a fifth of the time that the schemas take, and any other form by the schemas.
"""

import struct
from typing import Any

from offsetlake.coordinator.share_state.stored_state import Record
from offsetlake.kafka.records.coordinator_records import SHARE_STATE_TOPIC, ShareStateRecordType, decode_record
from offsetlake.kafka.records.readers import unsigned_varint
from offsetlake.kafka.records.writers import unsigned_varint as encoded_varint
from offsetlake.rules.share_state import UNKNOWN, ShareSnapshot, ShareUpdate, StateBatch

SNAPSHOT, UPDATE = (struct.pack(">h", number) for number in ShareStateRecordType)
"""The types of records, at the start of a key."""

_VERSION = b"\0\0"
_SNAPSHOT_HEAD, _UPDATE_HEAD = struct.Struct(">iiiqqq"), struct.Struct(">iiq")
_BATCH = struct.Struct(">qqbhB")  # with the number of tagged fields
_INT32 = struct.Struct(">i")
_NO_TAGS, _COUNT_TAG = b"\0", b"\1\0\4"  # the second: one tagged field, with tag 0 and 4 bytes


def record_type(record: Record) -> bytes:
    """Return the type of a record, with which its key begins; a tombstone is that of a snapshot."""
    return UPDATE if isinstance(record, ShareUpdate) else SNAPSHOT


def encoded_value(record: Record) -> bytes | None:
    """Return the value of a record; None for a tombstone."""
    if record is None:
        return None
    if isinstance(record, ShareSnapshot):
        head = _SNAPSHOT_HEAD.pack(
            record.snapshot_epoch,
            record.state_epoch,
            record.leader_epoch,
            record.start_offset,
            record.create_timestamp,
            record.write_timestamp,
        )
    else:
        head = _UPDATE_HEAD.pack(record.snapshot_epoch, record.leader_epoch, record.start_offset)
    batches = b"".join(_BATCH.pack(first, last, state, count, 0) for first, last, count, state in record.batches)
    complete = record.delivery_complete_count
    tags = _NO_TAGS if complete == UNKNOWN else _COUNT_TAG + _INT32.pack(complete)
    return _VERSION + head + encoded_varint(len(record.batches) + 1) + batches + tags


def decoded(key: bytes, value: bytes | None) -> Record:
    """Return the record with a key and a value.

    Raises:
        UndecodableRecord: The key or the value is malformed, or of an unknown type or version.
    """
    if value is None and key[:2] == SNAPSHOT:
        return None
    usual = _usual(key[:2], value) if value else None
    return _decoded_by_schema(key, value) if usual is None else usual


def _usual(kind: bytes, value: bytes) -> ShareSnapshot | ShareUpdate | None:
    """Return the record of a value in the usual form, None for any other value."""
    head = _SNAPSHOT_HEAD if kind == SNAPSHOT else _UPDATE_HEAD
    position = len(_VERSION) + head.size
    if len(value) <= position or value[:2] != _VERSION or kind not in {SNAPSHOT, UPDATE}:
        return None
    length, position = unsigned_varint(value, position, "stateBatches")
    end = position + (length - 1) * _BATCH.size
    tags, complete = value[end:], UNKNOWN
    if tags[:3] == _COUNT_TAG and len(tags) == len(_COUNT_TAG) + _INT32.size:
        (complete,) = _INT32.unpack_from(tags, len(_COUNT_TAG))
    elif tags != _NO_TAGS or length < 1:
        return None
    rows = [*_BATCH.iter_unpack(value[position:end])]
    if any(row[-1] for row in rows):
        return None
    batches = tuple(StateBatch(first, last, deliveries, state) for first, last, state, deliveries, _ in rows)
    if kind == UPDATE:
        epoch, leader_epoch, start = _UPDATE_HEAD.unpack_from(value, 2)
        return ShareUpdate(epoch, leader_epoch, start, batches, complete)
    epoch, state_epoch, leader_epoch, start, created, written = _SNAPSHOT_HEAD.unpack_from(value, 2)
    return ShareSnapshot(epoch, state_epoch, leader_epoch, start, batches, complete, created, written)


def _decoded_by_schema(key: bytes, value: bytes | None) -> Record:
    record = decode_record(SHARE_STATE_TOPIC, key, value)
    if record.value is None:
        return None
    fields: dict[str, Any] = record.value
    batches = tuple(
        StateBatch(batch["firstOffset"], batch["lastOffset"], batch["deliveryCount"], batch["deliveryState"])
        for batch in fields["stateBatches"]
    )
    epoch, leader_epoch, start = fields["snapshotEpoch"], fields["leaderEpoch"], fields["startOffset"]
    complete = fields.get("deliveryCompleteCount", UNKNOWN)
    if record.record_type == ShareStateRecordType.SHARE_UPDATE:
        return ShareUpdate(epoch, leader_epoch, start, batches, complete)
    times = fields["createTimestamp"], fields["writeTimestamp"]
    return ShareSnapshot(epoch, fields["stateEpoch"], leader_epoch, start, batches, complete, *times)
