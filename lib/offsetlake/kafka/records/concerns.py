"""What a quarantined record concerns, as far as its key can be read.

The keys of all record types begin with the record type and the group ID, so the group of a record is known even if its
type is not. A record whose key names nothing (null, or shorter than a record type) concerns nothing: no version of
Kafka can apply it to a group. A batch that cannot be read may contain records of every group of its log partition.
"""

from typing import Literal, NamedTuple

from offsetlake.errors import UndecodableRecord
from offsetlake.kafka.records import readers
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC, OffsetsRecordType, decode_key, to_json

Scope = Literal["offset", "group", "share_partition", "log_partition"]

_OFFSET_KEYS = (OffsetsRecordType.LEGACY_OFFSET_COMMIT, OffsetsRecordType.OFFSET_COMMIT)
_TYPE_BYTES = 2
_read_group = readers.string("the group ID", nullable=False, compact=False)


class Concern(NamedTuple):
    """What a quarantined record concerns.

    Attributes:
        scope: One offset, the state of a group, a share partition, or everything before it in its log partition.
        group_id: The group; None for the scope `log_partition`.
        topic, partition: The topic of an offset, and the partition of an offset or share partition.
        topic_id: The topic of a share partition.
        record_type: The record type in the key; None for the scope `log_partition`.
        record: Identifies the record within its group: a later record with the same text supersedes it.
    """

    scope: Scope
    group_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    topic_id: str | None = None
    record_type: int | None = None
    record: str = ""


EVERYTHING = Concern("log_partition")


def concern(topic: str, key: bytes | None) -> Concern | None:
    """Return what a record of a coordinator topic with this key concerns; None if it concerns nothing."""
    if key is None or len(key) < _TYPE_BYTES:
        return None
    record_type = int.from_bytes(key[:_TYPE_BYTES], signed=True)
    try:
        fields = decode_key(topic, key)
    except UndecodableRecord:
        return _of_unknown_key(record_type, key)
    if topic != OFFSETS_TOPIC:
        place = {"topic_id": fields["topicId"], "partition": fields["partition"]}
        return Concern("share_partition", fields["groupId"], record_type=record_type, **place)
    if record_type in _OFFSET_KEYS:
        return Concern("offset", fields["group"], fields["topic"], fields["partition"], record_type=record_type)
    group_id = fields["group"] if "group" in fields else fields["groupId"]
    return Concern("group", group_id, record_type=record_type, record=record_name(record_type, to_json(fields)))


def record_name(record_type: int, key: str) -> str:
    """Return the text that identifies a record within its group, by its type and its key as JSON."""
    return f"{record_type} {key}"


def _of_unknown_key(record_type: int, key: bytes) -> Concern:
    try:
        group_id, _ = _read_group(key, _TYPE_BYTES)
    except UndecodableRecord:
        return EVERYTHING
    return Concern("group", group_id, record_type=record_type, record=f"{record_type} {key.hex()}")
