"""What members of a classic group of protocol type "consumer" say in their blobs: subscription and assignment."""

import struct
from collections.abc import Mapping
from typing import Any

from offsetlake.errors import UndecodableRecord
from offsetlake.kafka.records.codec import decode
from offsetlake.kafka.records.schema import Schema, load_schema


def decode_subscription(blob: bytes) -> tuple[Mapping[str, Any] | None, bool]:
    """Read a ConsumerProtocolSubscription, and tell whether all of the blob is in what was read.

    Versions 0 to 3 are read in full. Of a higher version, or one whose later fields are damaged, the topics and the
    user data are read, which stand first in all versions and are all a broker reads. None is an unknown subscription:
    a version below 0, or even those fields are cut off.
    """
    return _decode(load_schema("ConsumerProtocolSubscription"), blob, unknown_version=0)


def decode_assignment(blob: bytes) -> tuple[Mapping[str, Any] | None, bool]:
    """Read a ConsumerProtocolAssignment as `decode_subscription` does; versions above 3 are read as version 3."""
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
