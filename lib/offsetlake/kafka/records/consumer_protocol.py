"""Decodes and encodes the subscriptions and assignments of members of classic groups with the protocol type "consumer".

A blob is the version, an int16, and a message. A decoded subscription does not contain the version, because it follows
from the fields: version 1 added `ownedPartitions`, version 2 `generationId` and version 3 `rackId`. A decoded
assignment, like one that kafka-dump-log prints, does not contain it either; all versions have the same fields.
"""

import struct
from collections.abc import Mapping
from typing import Any

from offsetlake.errors import UndecodableRecord
from offsetlake.kafka.records.codec import decode, encode
from offsetlake.kafka.records.schema import Schema, load_schema

_VERSION = struct.Struct(">h")
_NEWEST_VERSION = 3  # of both
_FIELDS_BY_VERSION = ("ownedPartitions", "generationId", "rackId")  # of subscriptions, from version 1


def decode_subscription(blob: bytes) -> tuple[Mapping[str, Any] | None, bool]:
    """Return a ConsumerProtocolSubscription, and whether it contains everything that is in the blob.

    Versions 0 to 3 are decoded completely. If the version is higher or later fields are malformed, only the topics and
    the user data are decoded: they come first in all versions, and brokers read nothing else. The subscription is None
    if the version is negative or even those fields are malformed.
    """
    return _decode(load_schema("ConsumerProtocolSubscription"), blob, unknown_version=0)


def decode_assignment(blob: bytes) -> tuple[Mapping[str, Any] | None, bool]:
    """Return a ConsumerProtocolAssignment like `decode_subscription`; versions above 3 are decoded as version 3."""
    return _decode(load_schema("ConsumerProtocolAssignment"), blob, unknown_version=_NEWEST_VERSION)


def read_subscription(blob: bytes) -> Mapping[str, Any] | None:
    """Return a ConsumerProtocolSubscription as a broker reads that of a member of a consumer group, or None.

    It is None if the version is negative or any field is malformed; versions above 3 are decoded as version 3.
    """
    version = _version_of(blob)
    if version < 0:
        return None
    try:
        schema = load_schema("ConsumerProtocolSubscription")
        return decode(schema, min(version, _NEWEST_VERSION), blob, _VERSION.size)[0]
    except UndecodableRecord:
        return None


def encode_subscription(value: Mapping[str, Any]) -> bytes:
    """Return the blob of a decoded subscription, whose user data may be base64 text.

    Raises:
        ValueError: The schema cannot represent the value.
    """
    version = max((index for index, name in enumerate(_FIELDS_BY_VERSION, 1) if name in value), default=0)
    return _encode(load_schema("ConsumerProtocolSubscription"), version, value)


def encode_assignment(value: Mapping[str, Any], subscription: bytes) -> bytes:
    """Return the blob of a decoded assignment like `encode_subscription`.

    The version is that of the member's subscription, as where a broker encodes assignments of classic members
    (`ClassicGroup.fromConsumerGroup`), but at most 3.
    """
    version = min(max(_version_of(subscription), 0), _NEWEST_VERSION)
    return _encode(load_schema("ConsumerProtocolAssignment"), version, value)


def _decode(schema: Schema, blob: bytes, *, unknown_version: int) -> tuple[Mapping[str, Any] | None, bool]:
    stated = _version_of(blob)
    if stated < 0:
        return None, False
    for version in (stated, unknown_version):
        try:
            value, end = decode(schema, version, blob, _VERSION.size)
        except UndecodableRecord:
            continue
        return value, version == stated and end == len(blob)
    return None, False


def _encode(schema: Schema, version: int, value: Mapping[str, Any]) -> bytes:
    return _VERSION.pack(version) + encode(schema, version, value)


def _version_of(blob: bytes) -> int:
    return -1 if len(blob) < _VERSION.size else int(_VERSION.unpack_from(blob)[0])
