"""Encodes coordinator records, and computes Java's string hash, which maps groups to log partitions."""

import struct
from typing import NamedTuple
from uuid import UUID


def java_hash(text: str) -> int:
    """Return Java's String.hashCode: over UTF-16 code units, as a signed 32-bit integer."""
    result = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        result = (31 * result + (high << 8) + low) & 0xFFFFFFFF
    return result - 2**32 if result >= 2**31 else result


def group_log_partition(group_id: str, log_partitions: int) -> int:
    """Return the log partition of a group; the absolute value of the smallest int32 counts as 0."""
    number = java_hash(group_id)
    return 0 if number == -(2**31) else abs(number) % log_partitions


def offset_key(group_id: str, topic: str, partition: int, *, legacy: bool = False) -> bytes:
    """Return an OffsetCommitKey: record type 1, or 0 as in Kafka 0.8.2."""
    return struct.pack(">h", 0 if legacy else 1) + string(group_id) + string(topic) + struct.pack(">i", partition)


def offset_value(
    version: int,
    committed_offset: int,
    *,
    commit_timestamp: int,
    leader_epoch: int = -1,
    metadata: str = "",
    expire_timestamp: int = -1,
    topic_id: UUID | None = None,
) -> bytes:
    """Return an OffsetCommitValue, versions 0 to 4, without fields that the version lacks."""
    out = struct.pack(">hq", version, committed_offset)
    if version >= 3:
        out += struct.pack(">i", leader_epoch)
    out += compact_string(metadata) if version >= 4 else string(metadata)
    out += struct.pack(">q", commit_timestamp)
    if version == 1:
        out += struct.pack(">q", expire_timestamp)
    if version >= 4:
        out += b"\x00" if topic_id is None else b"\x01\x00\x10" + topic_id.bytes
    return out


class Member(NamedTuple):
    """A member of a classic group in a GroupMetadataValue."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


def group_metadata_key(group_id: str) -> bytes:
    """Return a GroupMetadataKey, record type 2."""
    return struct.pack(">h", 2) + string(group_id)


def group_metadata_value(
    version: int,
    *,
    protocol_type: str,
    generation: int,
    protocol: str | None,
    leader: str | None,
    state_timestamp: int = -1,
    members: tuple[Member, ...] = (),
) -> bytes:
    """Return a GroupMetadataValue, versions 0 to 4."""
    text = compact_string if version >= 4 else string
    out = struct.pack(">h", version) + text(protocol_type)
    out += struct.pack(">i", generation) + text(protocol) + text(leader)
    if version >= 2:
        out += struct.pack(">q", state_timestamp)
    out += unsigned_varint(len(members) + 1) if version >= 4 else struct.pack(">i", len(members))
    out += b"".join(_member(version, member) for member in members)
    return out + (b"\x00" if version >= 4 else b"")


def _member(version: int, member: Member) -> bytes:
    text = compact_string if version >= 4 else string
    out = text(member.member_id)
    if version >= 3:
        out += text(member.group_instance_id)
    out += text(member.client_id) + text(member.client_host)
    if version >= 1:
        out += struct.pack(">i", member.rebalance_timeout)
    out += struct.pack(">i", member.session_timeout)
    for blob in (member.subscription, member.assignment):
        out += (unsigned_varint(len(blob) + 1) if version >= 4 else struct.pack(">i", len(blob))) + blob
    return out + (b"\x00" if version >= 4 else b"")


def string(text: str | None) -> bytes:
    """Return a string of a non-flexible message: its length is an int16, -1 for null."""
    return b"\xff\xff" if text is None else struct.pack(">h", len(text.encode())) + text.encode()


def compact_string(text: str | None) -> bytes:
    """Return a string of a flexible message: the unsigned varint is its length plus 1, 0 for null."""
    return b"\x00" if text is None else unsigned_varint(len(text.encode()) + 1) + text.encode()


def unsigned_varint(number: int) -> bytes:
    """Return an unsigned varint (LEB128)."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def zigzag_varint(number: int) -> bytes:
    """Return a zigzag varint or varlong of a record batch."""
    return unsigned_varint(number << 1 if number >= 0 else (-number << 1) - 1)
