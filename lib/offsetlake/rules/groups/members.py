"""The state of the members of a group, and their rows of the table `group_members`.

| Column                              | Group types | Description |
|-------------------------------------|-------------|-------------|
| group_id, member_id                 | all         | the key |
| client_id, client_host, rack_id     | all         | as the client sent them |
| group_instance_id                   | all         | the instance ID of a static member |
| rebalance_timeout_ms                | all         | null if unknown; the session timeout of old classic members |
| session_timeout_ms                  | classic     | also of members of consumer groups that use the classic protocol |
| subscribed_topics                   | all         | topic names; null if they cannot be parsed, and for streams |
| subscribed_regex, server_assignor   | consumer    | as the client sent them |
| member_epoch, previous_member_epoch | not classic | 0 and -1 until the log has a current assignment of the member |
| member_state                        | not classic | the name of the state, see below |
| assignment                          | all         | assigned partitions, see below; null if it cannot be parsed |
| target_assignment                   | not classic | as assignment; null while there is none |
| details                             | not classic | JSON with all other fields, see below; null if there are none |

* member_state is STABLE, UNREVOKED_PARTITIONS, UNRELEASED_PARTITIONS (for streams UNREVOKED_TASKS, UNRELEASED_TASKS) or
  UNKNOWN.
* assignment has entries {topic, topic_id, subtopology, task_type, partitions}. Classic members have a topic, consumer
  and share members a topic_id, and streams members a subtopology and a task_type (active, standby or warmup).
* details has the other fields of the member's records by Kafka's names: the partitions pending revocation, the process
  ID, the user endpoint, and others.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from offsetlake.rules.groups.subscriptions import CONSUMER_PROTOCOL_TYPE

Value = Mapping[str, Any]
Row = dict[str, Any]
GroupType = Literal["classic", "consumer", "share", "streams"]

# The states in current-assignment records, by number; a broker reads any other number as UNKNOWN.
_MEMBER_STATES = {0: "STABLE", 1: "UNREVOKED_PARTITIONS", 2: "UNRELEASED_PARTITIONS"}
_STREAMS_MEMBER_STATES = {1: "STABLE", 2: "UNREVOKED_TASKS", 3: "UNRELEASED_TASKS"}

_NOT_ASSIGNED: Value = {"memberEpoch": 0, "previousMemberEpoch": -1}
UNASSIGNED: Value = {"memberEpoch": -1, "previousMemberEpoch": -1}
"""The current assignment of a member after the tombstone of its record, as in a broker."""

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
    """A member of a consumer, share or streams group: the newest values of its metadata and current assignment.

    After log compaction, the current assignment of a member may precede its metadata. As in a broker, either record
    creates the member.
    """

    metadata: Value | None = None
    current: Value | None = None

    def state(self, group_type: GroupType) -> str:
        """Return the name of the member's state, which is STABLE without a current assignment."""
        if self.current is None or "state" not in self.current:
            return "STABLE"
        names = _STREAMS_MEMBER_STATES if group_type == "streams" else _MEMBER_STATES
        return names.get(self.current["state"], "UNKNOWN")

    def is_reconciled(self, group_type: GroupType, assignment_epoch: int) -> bool:
        """Return whether the member has reconciled with the target assignment of this epoch."""
        epoch: int = (self.current or _NOT_ASSIGNED)["memberEpoch"]
        return epoch == assignment_epoch and self.state(group_type) == "STABLE"

    def row(self, group_id: str, group_type: GroupType, member_id: str, target: Value | None) -> Row:
        """Return the row of the member; `target` is the value of its target-assignment record."""
        metadata, current = self.metadata or {}, self.current or _NOT_ASSIGNED
        others = {name: value for name, value in {**metadata, **current}.items() if name not in _IN_COLUMNS}
        details = {name: value for name, value in others.items() if value not in (None, "", [])}
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
            # The Java client sends "" if there is no regular expression.
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
    """Return the row of a member in a GroupMetadataValue; only the protocol type "consumer" is parsed."""
    parsed = protocol_type == CONSUMER_PROTOCOL_TYPE
    subscription = member["subscription"] if parsed else None
    assignment = member["assignment"] if parsed else None
    session_timeout = member["sessionTimeout"]
    return {
        "group_id": group_id,
        "member_id": member["memberId"],
        "group_instance_id": member.get("groupInstanceId"),
        "client_id": member["clientId"],
        "client_host": member["clientHost"],
        # librdkafka sends "" if there is no rack.
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
    # An assignment that could not be parsed is None or Base64 text.
    if not isinstance(assignment, Mapping):
        return None
    return _in_order(_assigned(entry["partitions"], topic=entry["topic"]) for entry in assignment["assignedPartitions"])


def _assignment(value: Value) -> list[Row]:
    """Return the assignment in a current-assignment or target-assignment value of any group type but classic."""
    topics = value.get("assignedPartitions", value.get("topicPartitions", ()))
    assigned = [_assigned(entry["partitions"], topic_id=entry["topicId"]) for entry in topics]
    tasks = [(task_type, entry) for name, task_type in _TASK_TYPES.items() for entry in value.get(name, ())]
    assigned += [
        _assigned(entry["partitions"], subtopology=entry["subtopologyId"], task_type=task_type)
        for task_type, entry in tasks
    ]
    return _in_order(assigned)


def _assigned(partitions: Iterable[int], **target: str) -> Row:
    absent: Row = dict.fromkeys(("topic", "topic_id", "subtopology", "task_type"))
    return absent | target | {"partitions": sorted(partitions)}


def _in_order(assigned: Iterable[Row]) -> list[Row]:
    names = ("task_type", "subtopology", "topic_id", "topic")
    return sorted(assigned, key=lambda entry: [entry[name] or "" for name in names])


def _sorted(names: Iterable[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)


def _known(timeout: int, default: int | None = None) -> int | None:
    return default if timeout == -1 else timeout
