"""Replays the group records of the log, in log order, to the latest state of each group.

The result is the state of a broker of version 4.1 or 4.2 that has loaded the same log (`GroupMetadataManager.replay`
in Kafka), but the replay never fails. In the cases marked with (!), where a broker fails to load the partition, the
newest record applies.

| record               | no group      | group of its type             | simple group    | group of another type |
|----------------------|---------------|-------------------------------|-----------------|-----------------------|
| 1, commit            | simple group  | ignored                       | ignored         | ignored               |
| 2, classic metadata  | group         | replaced                      | replaced        | replaced              |
| 2, tombstone         | ignored       | removed                       | removed         | removed               |
| part                 | group with it | part set                      | replaced        | replaced (!)          |
| tombstone of a part  | ignored       | part removed                  | replaced, empty | ignored (!)           |
| 3, 11, 17, tombstone | ignored       | removed, with any members (!) | removed         | ignored (!)           |

A part is a record of types 3-8 and 16 (consumer), 10-15 (share), 17 and 19-23 (streams). A broker of version 4.1 fails
on share and streams records of a simple group. The tombstone of a member removes the member even if it precedes the
tombstone of its assignment (!). A classic group that is upgraded to the consumer protocol is removed by a tombstone of
type 2 and created again by the records after it; a downgrade has the reverse order. Records of any other type are
ignored, as in a broker.

A quarantined record creates its group if there is none, and makes its state unknown until a later record supersedes it;
`offsetlake.rules.unresolved` has the rule.
"""

from collections.abc import Callable
from typing import NamedTuple

from offsetlake.kafka.records.concerns import record_name
from offsetlake.kafka.records.coordinator_records import to_json
from offsetlake.rules.groups.members import UNASSIGNED, GroupMember, GroupType, Value
from offsetlake.rules.groups.state import BATCH, GroupState


class GroupRecord(NamedTuple):
    """One group record, with the key and value in Kafka's JSON form.

    Attributes:
        log_partition: The partition of the record.
        log_offset: The offset of the record.
        log_timestamp: The timestamp of the record, in ms since the epoch; None if it has none.
        record_type: The type of the key. Type 1 is the newest commit of the group among the replayed records; only
            whether its value is None matters.
        key: `{"group"}` for types 1 and 2, otherwise `{"groupId"}`, and `memberId` or `regularExpression` if the type
            has one.
        value: None for a tombstone. The `subscription` and `assignment` of a member in a value of type 2 are dicts for
            the protocol type "consumer", and None if their bytes cannot be parsed.
        unread: Why the record is quarantined; None if it was decoded. If it is, `key` has the group as
            type 2 has, and `record` is that of its `Concern`.
    """

    log_partition: int
    log_offset: int
    log_timestamp: int | None
    record_type: int
    key: Value
    value: Value | None
    unread: str | None = None
    record: str = ""


def replay(state: GroupState | None, record: GroupRecord) -> GroupState | None:
    """Return the state of the group after its next record in log order; None if the group does not exist.

    The given state must not be used afterwards: it may be modified and returned.
    """
    if record.unread is not None:
        return _unread(state, record, record.unread)
    if state is not None and state.unread:
        state.unread.pop(record_name(record.record_type, to_json(record.key)), None)
    if record.record_type in _WHOLE_GROUP:
        return _WHOLE_GROUP[record.record_type](state, record)
    if record.record_type in _PART_OF_GROUP:
        group_type, apply = _PART_OF_GROUP[record.record_type]
        group = _group_for(state, record, group_type)
        return state if group is None else apply(group, record)
    return state


def _unread(state: GroupState | None, record: GroupRecord, reason: str) -> GroupState:
    if state is None:
        group_type = _PART_OF_GROUP[record.record_type][0] if record.record_type in _PART_OF_GROUP else "classic"
        state = GroupState(record.key["group"], group_type, *record[:3])
    state.log_partition, state.log_offset, state.log_timestamp = record[:3]
    state.unread[record.record] = (record.log_offset, reason)
    return state


def _offset_commit(state: GroupState | None, record: GroupRecord) -> GroupState | None:
    if state is not None or record.value is None:
        return state
    return GroupState(record.key["group"], "classic", record.log_partition, record.log_offset, record.log_timestamp)


def _classic_metadata(_state: GroupState | None, record: GroupRecord) -> GroupState | None:
    log_partition, log_offset, log_timestamp, _, key, value = record[:6]
    if value is None:
        return None
    return GroupState(key["group"], "classic", log_partition, log_offset, log_timestamp, value)


def _group_for(state: GroupState | None, record: GroupRecord, group_type: GroupType) -> GroupState | None:
    """Return the group of a record, created if needed, at the position of the record; None if it is to be ignored."""
    if state is not None and state.group_type == group_type:
        state.log_partition, state.log_offset, state.log_timestamp = record[:3]
        return state
    if record.value is None and (state is None or not state.is_simple()):
        return None
    group = GroupState(record.key["groupId"], group_type, *record[:3])
    if state is not None:
        group.unread = state.unread
    return group


def _group_epoch(group: GroupState, record: GroupRecord) -> GroupState | None:
    if record.value is None:
        return None
    group.epoch = record.value["epoch"]
    if group.epoch == _FIRST_EPOCH:
        group.unread.pop(BATCH, None)
    group.metadata_hash = record.value.get("metadataHash", 0)
    return group


def _partition_metadata(group: GroupState, record: GroupRecord) -> GroupState:
    group.has_partition_metadata = record.value is not None
    return group


def _share_topics(group: GroupState, record: GroupRecord) -> GroupState:
    group.share_topics = record.value
    return group


def _member(group: GroupState, record: GroupRecord) -> GroupState:
    member_id = record.key["memberId"]
    if record.value is None:
        group.members.pop(member_id, None)
    else:
        group.members.setdefault(member_id, GroupMember()).metadata = record.value
    return group


def _current_assignment(group: GroupState, record: GroupRecord) -> GroupState:
    member_id = record.key["memberId"]
    if record.value is not None:
        group.members.setdefault(member_id, GroupMember()).current = record.value
    elif member_id in group.members:
        group.members[member_id].current = UNASSIGNED
    return group


def _assignment_epoch(group: GroupState, record: GroupRecord) -> GroupState:
    group.assignment_epoch = -1 if record.value is None else record.value["assignmentEpoch"]
    return group


def _target_assignment(group: GroupState, record: GroupRecord) -> GroupState:
    if record.value is None:
        group.target_assignments.pop(record.key["memberId"], None)
    else:
        group.target_assignments[record.key["memberId"]] = record.value
    return group


def _regular_expression(group: GroupState, record: GroupRecord) -> GroupState:
    if record.value is None:
        group.regexes.pop(record.key["regularExpression"], None)
    else:
        group.regexes[record.key["regularExpression"]] = record.value["topics"]
        group.regex_version, group.regex_timestamp = record.value["version"], record.value["timestamp"]
    return group


def _topology(group: GroupState, record: GroupRecord) -> GroupState:
    group.topology = record.value
    return group


_FIRST_EPOCH = 1
"""The epoch of a group that its first member has just created, so nothing before it in the log matters."""

_WHOLE_GROUP: dict[int, Callable[[GroupState | None, GroupRecord], GroupState | None]] = {
    1: _offset_commit,
    2: _classic_metadata,
}

_PART_OF_GROUP: dict[int, tuple[GroupType, Callable[[GroupState, GroupRecord], GroupState | None]]] = {
    3: ("consumer", _group_epoch),
    4: ("consumer", _partition_metadata),
    5: ("consumer", _member),
    6: ("consumer", _assignment_epoch),
    7: ("consumer", _target_assignment),
    8: ("consumer", _current_assignment),
    10: ("share", _member),
    11: ("share", _group_epoch),
    12: ("share", _assignment_epoch),
    13: ("share", _target_assignment),
    14: ("share", _current_assignment),
    15: ("share", _share_topics),
    16: ("consumer", _regular_expression),
    17: ("streams", _group_epoch),
    19: ("streams", _member),
    20: ("streams", _assignment_epoch),
    21: ("streams", _target_assignment),
    22: ("streams", _current_assignment),
    23: ("streams", _topology),
}
