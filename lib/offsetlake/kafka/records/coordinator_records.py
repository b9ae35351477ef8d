"""Record types of the coordinator topics, decoding of records into dicts, and encoding of those that are written."""

import base64
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

from offsetlake.errors import UndecodableRecord
from offsetlake.kafka.records.codec import decode, encode
from offsetlake.kafka.records.consumer_protocol import decode_assignment, decode_subscription
from offsetlake.kafka.records.schema import Schema, load_schema, load_schemas

OFFSETS_TOPIC = "__consumer_offsets"
SHARE_STATE_TOPIC = "__share_group_state"
TRANSACTIONS_TOPIC = "__transaction_state"


class OffsetsRecordType(IntEnum):
    """Record types of `__consumer_offsets`: the int16 at the start of a key."""

    LEGACY_OFFSET_COMMIT = 0
    OFFSET_COMMIT = 1
    GROUP_METADATA = 2
    CONSUMER_GROUP_METADATA = 3
    CONSUMER_GROUP_PARTITION_METADATA = 4
    CONSUMER_GROUP_MEMBER_METADATA = 5
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = 6
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = 8
    SHARE_GROUP_PARTITION_METADATA = 9
    SHARE_GROUP_MEMBER_METADATA = 10
    SHARE_GROUP_METADATA = 11
    SHARE_GROUP_TARGET_ASSIGNMENT_METADATA = 12
    SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER = 13
    SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT = 14
    SHARE_GROUP_STATE_PARTITION_METADATA = 15
    CONSUMER_GROUP_REGULAR_EXPRESSION = 16
    STREAMS_GROUP_METADATA = 17
    STREAMS_GROUP_MEMBER_METADATA = 19
    STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA = 20
    STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER = 21
    STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT = 22
    STREAMS_GROUP_TOPOLOGY = 23


class ShareStateRecordType(IntEnum):
    """Record types of `__share_group_state`: the int16 at the start of a key."""

    SHARE_SNAPSHOT = 0
    SHARE_UPDATE = 1


class TransactionStateRecordType(IntEnum):
    """Record types of `__transaction_state`: the int16 at the start of a key."""

    TRANSACTION_LOG = 0


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """A record of a coordinator topic, with the field names and values of Kafka's JSON (bytes as `bytes`).

    Attributes:
        record_type: The int16 at the start of the key.
        name: Kafka's name of the record, such as `GroupMetadata`.
        key: The fields of the key.
        value_version: The version of the value; None for a tombstone.
        value: The fields of the value without tagged fields at their default; None for a tombstone.
    """

    record_type: int
    name: str
    key: dict[str, Any]
    value_version: int | None
    value: dict[str, Any] | None


class _RecordSchema(NamedTuple):
    name: str
    key: Schema
    value: Schema


def decode_record(topic: str, key: bytes | None, value: bytes | None) -> DecodedRecord:
    """Decode a record of a coordinator topic; a null value is a tombstone.

    In GroupMetadata, `subscription` and `assignment` of members with the protocol type "consumer" are dicts, or None if
    they are malformed. If a dict does not contain all of the bytes, the bytes are added as base64 text, as
    `subscriptionBytes` or `assignmentBytes`. For other protocol types, both fields are base64 text. Like in a broker,
    bytes after a message are ignored.

    Raises:
        UndecodableRecord: The key is null or too short, the record type or the value version is unknown, the value is
            empty but not null, or the key or the value is malformed.
    """
    record_type, schema, fields = _decode_key(topic, key)
    if value is None:
        return DecodedRecord(record_type, schema.name, fields, None, None)
    if len(value) < 2:
        problem = "too short for a version: 1 byte" if value else "empty; the value of a tombstone is null"
        raise UndecodableRecord(f"the {schema.value.name} is {problem}")
    version = int.from_bytes(value[:2], signed=True)
    content, _ = decode(schema.value, version, value, 2)
    if topic == OFFSETS_TOPIC and record_type == OffsetsRecordType.GROUP_METADATA:
        _open_member_blobs(content)
    return DecodedRecord(record_type, schema.name, fields, version, content)


def decode_key(topic: str, key: bytes) -> dict[str, Any]:
    """Return the fields of the key of a record; raise UndecodableRecord as `decode_record`."""
    return _decode_key(topic, key)[2]


def _decode_key(topic: str, key: bytes | None) -> tuple[int, _RecordSchema, dict[str, Any]]:
    if key is None:
        raise UndecodableRecord("the key is null")
    if len(key) < 2:
        raise UndecodableRecord(f"the key is too short for a record type: {len(key)} bytes")
    record_type = int.from_bytes(key[:2], signed=True)
    schema = _record_schemas(topic).get(record_type)
    if schema is None:
        raise UndecodableRecord(f"the record type {record_type} is unknown in {topic}")
    fields, _ = decode(schema.key, 0, key, 2)
    return record_type, schema, fields


def to_json(decoded_part: Mapping[str, Any]) -> str:
    """Return a key or value of a DecodedRecord as compact JSON with bytes as base64, like `data` of kafka-dump-log."""
    return json.dumps(decoded_part, ensure_ascii=False, separators=(",", ":"), default=_base64)


def encode_key(topic: str, record_type: int, key: Mapping[str, Any]) -> bytes:
    """Return the key of a record.

    Raises:
        ValueError: The schema of the key cannot represent `key`.
    """
    return struct.pack(">h", record_type) + encode(_record_schemas(topic)[record_type].key, 0, key)


def encode_value(topic: str, record_type: int, version: int, value: Mapping[str, Any]) -> bytes:
    """Return the value of a record in a version of its schema; subscriptions and assignments of members are bytes.

    Raises:
        ValueError: The schema of the value cannot represent `value`.
    """
    return _versioned(_record_schemas(topic)[record_type].value, version, value)


def encode_transaction_state(transactional_id: str, value: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return the key and the value, in version 1, of a transactional ID.

    Raises:
        ValueError: The schemas cannot represent the ID or the value.
    """
    key = {"transactionalId": transactional_id}
    return (
        encode_key(TRANSACTIONS_TOPIC, TransactionStateRecordType.TRANSACTION_LOG, key),
        _versioned(load_schema("TransactionLogValue"), 1, value),
    )


def _versioned(schema: Schema, version: int, value: Mapping[str, Any]) -> bytes:
    message = encode(schema, version, value)
    return struct.pack(">h", version) + message


@cache
def _record_schemas(topic: str) -> Mapping[int, _RecordSchema]:
    values = [schema for schema in load_schemas() if schema.topic == topic and schema.name.endswith("Value")]
    names = {schema.record_type: schema.name.removesuffix("Value") for schema in values}
    return {
        record_type: _RecordSchema(name, load_schema(f"{name}Key"), load_schema(f"{name}Value"))
        for record_type, name in names.items()
        if record_type is not None
    }


def _open_member_blobs(value: dict[str, Any]) -> None:
    for member in value["members"]:
        if value["protocolType"] == "consumer":
            _open_blob(member, "subscription", decode_subscription)
            _open_blob(member, "assignment", decode_assignment)
        else:
            member["subscription"] = _base64(member["subscription"])
            member["assignment"] = _base64(member["assignment"])


def _open_blob(
    member: dict[str, Any], name: str, read: Callable[[bytes], tuple[Mapping[str, Any] | None, bool]]
) -> None:
    blob = member[name]
    member[name], complete = read(blob)
    if not complete:
        member[f"{name}Bytes"] = _base64(blob)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
