"""Decodes the subscriptions and assignments of members of classic groups with the protocol type "consumer"."""

import struct
from collections.abc import Mapping
from typing import Any

from offsetlake.errors import UndecodableRecord
from offsetlake.kafka.records.codec import decode
from offsetlake.kafka.records.schema import Schema, load_schema


def decode_subscription(blob: bytes) -> tuple[Mapping[str, Any] | None, bool]:
    """Return a ConsumerProtocolSubscription, and whether it contains everything that is in the blob.

    Versions 0 to 3 are decoded completely. If the version is higher or later fields are malformed, only the topics and
    the user data are decoded: they come first in all versions, and brokers read nothing else. The subscription is None
    if the version is negative or even those fields are malformed.
    """
    return _decode(load_schema("ConsumerProtocolSubscription"), blob, unknown_version=0)


def decode_assignment(blob: bytes) -> tuple[Mapping[str, Any] | None, bool]:
    """Return a ConsumerProtocolAssignment like `decode_subscription`; versions above 3 are decoded as version 3."""
    return _decode(load_schema("ConsumerProtocolAssignment"), blob, unknown_version=3)


def _decode(schema: Schema, blob: bytes, *, unknown_version: int) -> tuple[Mapping[str, Any] | None, bool]:
    stated = struct.unpack_from(">h", blob)[0] if len(blob) >= 2 else -1
    if stated < 0:
        return None, False
    for version in (stated, unknown_version):
        try:
            return decode(schema, version, blob, 2)[0], version == stated
        except UndecodableRecord:
            continue
    return None, False
