"""The state of one group: the newest value of each of its records, and its row of the table `groups`.

| Column                          | Group types | Description |
|---------------------------------|-------------|-------------|
| group_id                        | all         | the key |
| group_type                      | all         | classic, consumer, share or streams |
| state                           | all         | the name of the state, see below |
| protocol_type                   | all         | null for a simple group; the group type if it is not classic |
| protocol, leader, generation    | classic     | as in GroupMetadataValue |
| epoch, assignment_epoch         | not classic | of the group and of its target assignment, -1 after that is deleted |
| state_timestamp                 | classic     | when the group entered its state, in ms; null if unknown |
| subscription, subscribed_topics | all         | see `offsetlake.rules.groups.subscriptions` |
| member_count                    | all         | the number of members; null if the state is Unknown |
| log_partition                   | all         | the log partition of the group |
| log_offset, log_timestamp       | all         | of the newest record; null if the group has only commits |

The newest record may be a tombstone of a part that the group does not have: log compaction may have removed the record
of the part.

The state is derived as in a broker. A group without members is Empty, and a classic or share group with members is
Stable. A streams group without a topology is NotReady. A consumer or streams group whose epoch is greater than its
assignment epoch is Assigning; one with a member that is not stable at the assignment epoch is Reconciling; otherwise it
is Stable. There is one difference: in a broker that has just loaded the log, a streams group is NotReady until its
first heartbeat; here it is ready if it has a topology.

A group is Unknown while a quarantined record that may have changed it is newer than what was decoded. It then counts as
subscribed to everything, because its members are unknown (`offsetlake.rules.unresolved`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from offsetlake.rules.groups import subscriptions
from offsetlake.rules.groups.members import GroupMember, GroupType, Row, Value, classic_member_row
from offsetlake.rules.groups.subscriptions import Subscription

UNKNOWN = "Unknown"
"""The name of the state of a group that a quarantined record may have changed; Kafka's name of an unknown state."""

BATCH = "batch"
"""The key in `GroupState.unread` of a batch that cannot be read."""


@dataclass(slots=True)
class GroupState:
    """One group, as in a broker that has loaded the log up to `log_offset`.

    Values of records have Kafka's field names, and are never modified in place.

    Attributes:
        group_id: The ID of the group.
        group_type: The type of the group.
        log_partition: The log partition of the group.
        log_offset: The log offset of the newest record.
        log_timestamp: The timestamp of the newest record, in ms since the epoch.
        metadata: Classic groups: the newest GroupMetadataValue; None if the group has only commits.
        epoch: Other groups: the group epoch.
        assignment_epoch: Other groups: the epoch of the target assignment.
        members: Other groups: the members by ID.
        target_assignments: Other groups: the target assignments by member ID, possibly of IDs without a member.
        metadata_hash: Consumer groups: the hash of the subscribed topics in the newest ConsumerGroupMetadataValue.
        has_partition_metadata: Consumer groups: whether the log has a ConsumerGroupPartitionMetadataValue.
        regexes: Consumer groups: the topics that each regular expression matches.
        regex_version, regex_timestamp: Consumer groups: of the newest ConsumerGroupRegularExpressionValue.
        topology: Streams groups: the newest StreamsGroupTopologyValue.
        share_topics: Share groups: the newest ShareGroupStatePartitionMetadataValue.
        unread: The log offset and the reason of each quarantined record that no later record supersedes, by the record
            (`Concern.record`); those of a batch by BATCH.
    """

    group_id: str
    group_type: GroupType
    log_partition: int
    log_offset: int
    log_timestamp: int | None
    metadata: Value | None = None
    epoch: int = 0
    assignment_epoch: int = 0
    members: dict[str, GroupMember] = field(default_factory=dict)
    target_assignments: dict[str, Value] = field(default_factory=dict)
    metadata_hash: int = 0
    has_partition_metadata: bool = False
    regexes: dict[str, list[str]] = field(default_factory=dict)
    regex_version: int = 0
    regex_timestamp: int = 0
    topology: Value | None = None
    share_topics: Value | None = None
    unread: dict[str, tuple[int, str]] = field(default_factory=dict)

    def is_simple(self) -> bool:
        """Return whether the group is simple: a classic group with neither a protocol type nor members."""
        if self.group_type != "classic":
            return False
        return self.metadata is None or not (self.metadata["protocolType"] or self.metadata["members"])

    def to_dict(self) -> dict[str, Any]:
        """Return the whole state as dicts and lists that can be written as JSON and read with `from_dict`."""
        members = {
            member_id: {"metadata": member.metadata, "current": member.current}
            for member_id, member in self.members.items()
        }
        return {
            **{name: getattr(self, name) for name in self.__slots__},
            "members": members,
            "target_assignments": dict(self.target_assignments),
            "regexes": dict(self.regexes),
            "unread": {record: [*place] for record, place in self.unread.items()},
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Return the state that `to_dict` was called on."""
        members = {name: GroupMember(**values) for name, values in stored["members"].items()}
        copies: dict[str, Any] = {name: dict(stored[name]) for name in ("target_assignments", "regexes")}
        unread = {record: (place[0], place[1]) for record, place in stored.get("unread", {}).items()}
        return cls(**{**stored, **copies, "members": members, "unread": unread})

    def row(self) -> Row:
        """Return the row of the table `groups`, with the columns above."""
        classic = self.group_type == "classic"
        metadata = self.metadata or {}
        state_timestamp = metadata.get("currentStateTimestamp", -1)
        subscription, topics = self._subscription()
        only_commits = classic and self.metadata is None and not self.unread
        member_count = len(self._classic_members()) if classic else len(self.members)
        return {
            "group_id": self.group_id,
            "group_type": self.group_type,
            "state": self.state_name(),
            "protocol_type": (metadata.get("protocolType") or None) if classic else self.group_type,
            "protocol": metadata.get("protocol"),
            "leader": metadata.get("leader"),
            "generation": metadata.get("generation"),
            "epoch": None if classic else self.epoch,
            "assignment_epoch": None if classic else self.assignment_epoch,
            "state_timestamp": None if state_timestamp == -1 else state_timestamp,
            "subscription": subscription,
            "subscribed_topics": topics,
            "member_count": None if self.unread else member_count,
            "log_partition": self.log_partition,
            "log_offset": None if only_commits else self.log_offset,
            "log_timestamp": None if only_commits else self.log_timestamp,
        }

    def member_rows(self) -> list[Row]:
        """Return the rows of the table `group_members`, sorted by member ID, with the columns of `group_members`."""
        if self.metadata is not None:
            protocol_type, classic = self.metadata["protocolType"], sorted(self._classic_members().items())
            return [classic_member_row(self.group_id, protocol_type, member) for _, member in classic]
        return [
            member.row(self.group_id, self.group_type, member_id, self.target_assignments.get(member_id))
            for member_id, member in sorted(self.members.items())
        ]

    def state_name(self) -> str:
        """Return the name of the state, as above."""
        if self.unread:
            return UNKNOWN
        if not (self.members or self._classic_members()):
            return "Empty"
        if self.group_type in {"classic", "share"}:
            return "Stable"
        if self.group_type == "streams" and self.topology is None:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        members = self.members.values()
        reconciled = all(member.is_reconciled(self.group_type, self.assignment_epoch) for member in members)
        return "Stable" if reconciled else "Reconciling"

    def _classic_members(self) -> dict[str, Value]:
        members = [] if self.metadata is None else self.metadata["members"]
        return {member["memberId"]: member for member in members}

    def _subscription(self) -> Subscription:
        known = self._known_subscription()
        return Subscription("everything", known.topics) if self.unread else known

    def _known_subscription(self) -> Subscription:
        if self.group_type == "classic":
            return subscriptions.of_classic_group(self.metadata)
        if self.group_type == "streams":
            topology = self.topology if self.members else None
            return subscriptions.NOTHING if topology is None else subscriptions.of_topology(topology)
        metadata = (member.metadata for member in self.members.values() if member.metadata is not None)
        return subscriptions.of_members(metadata, self.regexes)
