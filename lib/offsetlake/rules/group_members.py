"""The members of a group: what is kept of each, how far it has come, and its row of table `group_members`.

* group_id, member_id, client_id, client_host, rack_id
* group_instance_id: of a static member
* rebalance_timeout_ms: null if unknown; a classic member without one has its session timeout
* session_timeout_ms: classic, and members of a consumer group that speak the classic protocol
* subscribed_topics: names; null if they cannot be read, and for streams
* subscribed_regex, server_assignor: consumer
* member_epoch, previous_member_epoch: all but classic; 0 and -1 while the log has no current assignment of the member
* member_state: all but classic; STABLE, UNREVOKED_PARTITIONS, UNRELEASED_PARTITIONS (streams: …_TASKS), UNKNOWN
* assignment: list of {topic, topic_id, subtopology, task_type, partitions}; null if it cannot be read. Classic members
  have topic; consumer and share topic_id; streams subtopology and task_type (active, standby, warmup)
* target_assignment: likewise; null for classic and while there is none
* details: JSON of all else the member's records say, by Kafka's field names (partitions pending revocation, process id,
  user endpoint, …); null if nothing, and for classic
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from offsetlake.rules.subscriptions import CONSUMER_PROTOCOL_TYPE

Value = Mapping[str, Any]
Row = dict[str, Any]
GroupType = Literal["classic", "consumer", "share", "streams"]

# The state numbers of current-assignment records; a broker takes any other for UNKNOWN.
_MEMBER_STATES = {0: "STABLE", 1: "UNREVOKED_PARTITIONS", 2: "UNRELEASED_PARTITIONS"}
_STREAMS_MEMBER_STATES = {1: "STABLE", 2: "UNREVOKED_TASKS", 3: "UNRELEASED_TASKS"}

_NOT_ASSIGNED: Value = {"memberEpoch": 0, "previousMemberEpoch": -1}
UNASSIGNED: Value = {"memberEpoch": -1, "previousMemberEpoch": -1}
"""What a broker makes of the tombstone of a current assignment."""

_TASK_TYPES = {"activeTasks": "active", "standbyTasks": "standby", "warmupTasks": "warmup"}
_IN_COLUMNS = frozenset(
    {
        *("instanceId", "clientId", "clientHost", "rackId", "rebalanceTimeoutMs", "subscribedTopicNames"),
        *("subscribedTopicRegex", "serverAssignor", "memberEpoch", "previousMemberEpoch", "state"),
        *("assignedPartitions", *_TASK_TYPES),
    }
)


@dataclass(slots=True)
class GroupMember:
    """A member of a consumer, share or streams group: its newest metadata and current-assignment values.

    Compaction can leave a current assignment before its member's metadata; a broker makes a member of either.
    """

    metadata: Value | None = None
    current: Value | None = None

    def state(self, group_type: GroupType) -> str:
        """Name the member's state; without a current assignment it is STABLE."""
        if self.current is None or "state" not in self.current:
            return "STABLE"
        names = _STREAMS_MEMBER_STATES if group_type == "streams" else _MEMBER_STATES
        return names.get(self.current["state"], "UNKNOWN")

    def is_reconciled(self, group_type: GroupType, assignment_epoch: int) -> bool:
        """Tell whether the member has taken up the target assignment of this epoch."""
        epoch: int = (self.current or _NOT_ASSIGNED)["memberEpoch"]
        return epoch == assignment_epoch and self.state(group_type) == "STABLE"

    def row(self, group_id: str, group_type: GroupType, member_id: str, target: Value | None) -> Row:
        """Give the member's row; `target` is its target-assignment value."""
        metadata, current = self.metadata or {}, self.current or _NOT_ASSIGNED
        rest = {name: value for name, value in {**metadata, **current}.items() if name not in _IN_COLUMNS}
        details = {name: value for name, value in rest.items() if value not in (None, "", [])}
        return {
            "group_id": group_id,
            "member_id": member_id,
            "group_instance_id": metadata.get("instanceId"),
            "client_id": metadata.get("clientId"),
            "client_host": metadata.get("clientHost"),
            "rack_id": metadata.get("rackId"),
            "rebalance_timeout_ms": _known(metadata.get("rebalanceTimeoutMs", -1)),
            "session_timeout_ms": (metadata.get("classicMemberMetadata") or {}).get("sessionTimeoutMs"),
            "subscribed_topics": _sorted(metadata.get("subscribedTopicNames")),
            # The Java client sends "" for no expression.
            "subscribed_regex": metadata.get("subscribedTopicRegex") or None,
            "server_assignor": metadata.get("serverAssignor"),
            "member_epoch": current["memberEpoch"],
            "previous_member_epoch": current["previousMemberEpoch"],
            "member_state": self.state(group_type),
            "assignment": _assignment(current),
            "target_assignment": None if target is None else _assignment(target),
            "details": json.dumps(details, sort_keys=True) if details else None,
        }


def classic_member_row(group_id: str, protocol_type: str, member: Value) -> Row:
    """Give the row of one member inside a GroupMetadataValue; blobs of other protocols than "consumer" stay unread."""
    readable = protocol_type == CONSUMER_PROTOCOL_TYPE
    subscription = member["subscription"] if readable else None
    assignment = member["assignment"] if readable else None
    session_timeout = member["sessionTimeout"]
    return {
        "group_id": group_id,
        "member_id": member["memberId"],
        "group_instance_id": member.get("groupInstanceId"),
        "client_id": member["clientId"],
        "client_host": member["clientHost"],
        # librdkafka sends "" for no rack.
        "rack_id": None if subscription is None else subscription.get("rackId") or None,
        "rebalance_timeout_ms": _known(member.get("rebalanceTimeout", -1), session_timeout),
        "session_timeout_ms": session_timeout,
        "subscribed_topics": None if subscription is None else _sorted(subscription["topics"]),
        "subscribed_regex": None,
        "server_assignor": None,
        "member_epoch": None,
        "previous_member_epoch": None,
        "member_state": None,
        "assignment": _classic_assignment(assignment),
        "target_assignment": None,
        "details": None,
    }


def _classic_assignment(assignment: Any) -> list[Row] | None:
    # An assignment that could not be parsed comes as None or as the bytes' text.
    if not isinstance(assignment, Mapping):
        return None
    return _in_order(_assigned(entry["partitions"], topic=entry["topic"]) for entry in assignment["assignedPartitions"])


def _assignment(value: Value) -> list[Row]:
    """Read the assignment out of a current- or target-assignment value of any kind of group."""
    topics = value.get("assignedPartitions", value.get("topicPartitions", ()))
    assigned = [_assigned(entry["partitions"], topic_id=entry["topicId"]) for entry in topics]
    tasks = [(task_type, entry) for name, task_type in _TASK_TYPES.items() for entry in value.get(name, ())]
    assigned += [_assigned(of["partitions"], subtopology=of["subtopologyId"], task_type=kind) for kind, of in tasks]
    return _in_order(assigned)


def _assigned(partitions: Iterable[int], **of: str) -> Row:
    absent: Row = dict.fromkeys(("topic", "topic_id", "subtopology", "task_type"))
    return absent | of | {"partitions": sorted(partitions)}


def _in_order(assigned: Iterable[Row]) -> list[Row]:
    names = ("task_type", "subtopology", "topic_id", "topic")
    return sorted(assigned, key=lambda entry: [entry[name] or "" for name in names])


def _sorted(names: Iterable[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)


def _known(timeout: int, otherwise: int | None = None) -> int | None:
    return otherwise if timeout == -1 else timeout
