"""The GROUP_METADATA records of classic groups, in the fields of value version 3."""

from offsetlake.coordinator.classic.group import ClassicGroup
from offsetlake.coordinator.classic.member import EMPTY_ASSIGNMENT
from offsetlake.coordinator.steps import Record
from offsetlake.kafka.records.coordinator_records import OffsetsRecordType

NO_TIMESTAMP = -1


def group_record(group: ClassicGroup, *, assigned: bool = True) -> Record:
    """Return a record of the generation of a group, with the assignments of its members if they are `assigned`."""
    protocol = group.protocol or ""
    members = [
        {
            "memberId": member.member_id,
            "groupInstanceId": member.instance_id,
            "clientId": member.client_id,
            "clientHost": member.client_host,
            "rebalanceTimeout": member.rebalance_timeout_ms,
            "sessionTimeout": member.session_timeout_ms,
            "subscription": member.protocols[protocol],
            "assignment": member.assignment if assigned else EMPTY_ASSIGNMENT,
        }
        for member in group.members.values()
    ]
    value = {
        "protocolType": group.protocol_type or "",
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader_id,
        "currentStateTimestamp": NO_TIMESTAMP if group.state_timestamp_ms is None else group.state_timestamp_ms,
        "members": members,
    }
    return Record(OffsetsRecordType.GROUP_METADATA, {"group": group.group_id}, value)


def no_group(group: ClassicGroup) -> Record:
    """Return the tombstone that deletes a group; as in a broker, also of one that may have only commits."""
    return Record(OffsetsRecordType.GROUP_METADATA, {"group": group.group_id}, None)


def new_group_record(group: ClassicGroup) -> Record:
    """Return the record of a group that was created by the request of its first member."""
    value = {
        "protocolType": "",
        "generation": 0,
        "protocol": None,
        "leader": None,
        "currentStateTimestamp": NO_TIMESTAMP if group.state_timestamp_ms is None else group.state_timestamp_ms,
        "members": [],
    }
    return Record(OffsetsRecordType.GROUP_METADATA, {"group": group.group_id}, value)
