"""Replays the group records of the log, in log order, into the latest state of each group.

What comes out is what a broker of 4.1 or 4.2 holds once it has loaded the same log (Kafka's
`GroupMetadataManager.replay`), except that a reader never fails. Where a broker gives the partition up as corrupt (!),
the newest record is taken as true.

| record               | no group      | group of its kind             | simple group    | group of another kind |
|----------------------|---------------|-------------------------------|-----------------|-----------------------|
| 1, commit            | simple group  | nothing                       | nothing         | nothing               |
| 2, classic metadata  | group         | replaced                      | replaced        | replaced              |
| 2, tombstone         | nothing       | removed                       | removed         | removed               |
| part                 | group with it | part set                      | replaced        | replaced (!)          |
| tombstone of a part  | nothing       | part taken away               | replaced, empty | nothing (!)           |
| 3, 11, 17, tombstone | nothing       | removed, with any members (!) | removed         | nothing (!)           |

A part is a record of types 3-8 and 16 (consumer), 10-15 (share), 17 and 19-23 (streams). On a simple group share and
streams records fail a 4.1 broker. A member's tombstone removes the member even before its assignment's tombstone (!).
A classic group that moves to the consumer protocol is removed by a type 2 tombstone and made anew by the records
behind it; one that moves back the other way round. Records of any other type change nothing: a broker skips them too.
"""

from collections.abc import Callable
from typing import NamedTuple

from offsetlake.rules.group_members import UNASSIGNED, GroupMember, GroupType, Value
from offsetlake.rules.group_state import GroupState


class GroupRecord(NamedTuple):
    """One group record, its key and value as in Kafka's JSON.

    * log_timestamp: ms, None where the log has none
    * record_type: the type in the key. Type 1 stands for the newest commit of the group among the records replayed;
      of its value only None, a tombstone, matters
    * key: `{"group"}` for types 1 and 2, else `{"groupId"}` with `memberId` or `regularExpression` where there is one
    * value: None is a tombstone. The `subscription` and `assignment` of a type 2 member are dicts for protocol type
      "consumer", and None where their bytes cannot be read
    """

    log_partition: int
    log_offset: int
    log_timestamp: int | None
    record_type: int
    key: Value
    value: Value | None


def replay(state: GroupState | None, record: GroupRecord) -> GroupState | None:
    """Bring the next record of the group into its state; None is no group, before and after.

    The state given is used up: it may be changed and given back. Records must come in log order.
    """
    if record.record_type in _WHOLE_GROUP:
        return _WHOLE_GROUP[record.record_type](state, record)
    if record.record_type in _PART_OF_GROUP:
        group_type, apply = _PART_OF_GROUP[record.record_type]
        group = _group_for(state, record, group_type)
        return state if group is None else apply(group, record)
    return state


def _offset_commit(state: GroupState | None, record: GroupRecord) -> GroupState | None:
    if state is not None or record.value is None:
        return state
    return GroupState(record.key["group"], "classic", record.log_partition, record.log_offset, record.log_timestamp)


def _classic_metadata(_state: GroupState | None, record: GroupRecord) -> GroupState | None:
    log_partition, log_offset, log_timestamp, _, key, value = record
    if value is None:
        return None
    return GroupState(key["group"], "classic", log_partition, log_offset, log_timestamp, value)


def _group_for(state: GroupState | None, record: GroupRecord, group_type: GroupType) -> GroupState | None:
    """Find or make the group a record belongs to, at the record's position; None if the record means nothing."""
    if state is not None and state.group_type == group_type:
        state.log_partition, state.log_offset, state.log_timestamp = record[:3]
        return state
    if record.value is None and (state is None or not state.is_simple()):
        return None
    return GroupState(record.key["groupId"], group_type, *record[:3])


def _group_epoch(group: GroupState, record: GroupRecord) -> GroupState | None:
    if record.value is None:
        return None
    group.epoch = record.value["epoch"]
    return group


def _no_part(group: GroupState, _record: GroupRecord) -> GroupState:
    """Keep nothing of the record but that the group is there."""
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
    return group


def _topology(group: GroupState, record: GroupRecord) -> GroupState:
    group.topology = record.value
    return group


_WHOLE_GROUP: dict[int, Callable[[GroupState | None, GroupRecord], GroupState | None]] = {
    1: _offset_commit,
    2: _classic_metadata,
}

_PART_OF_GROUP: dict[int, tuple[GroupType, Callable[[GroupState, GroupRecord], GroupState | None]]] = {
    3: ("consumer", _group_epoch),
    4: ("consumer", _no_part),
    5: ("consumer", _member),
    6: ("consumer", _assignment_epoch),
    7: ("consumer", _target_assignment),
    8: ("consumer", _current_assignment),
    10: ("share", _member),
    11: ("share", _group_epoch),
    12: ("share", _assignment_epoch),
    13: ("share", _target_assignment),
    14: ("share", _current_assignment),
    15: ("share", _no_part),
    16: ("consumer", _regular_expression),
    17: ("streams", _group_epoch),
    19: ("streams", _member),
    20: ("streams", _assignment_epoch),
    21: ("streams", _target_assignment),
    22: ("streams", _current_assignment),
    23: ("streams", _topology),
}
