"""The state of one group: the newest value of each of its records, and its row of table `groups`.

* group_id
* group_type: classic, consumer, share, streams
* state: classic and share Empty, Stable; consumer Empty, Assigning, Reconciling, Stable; streams those and NotReady
* protocol_type: null for a simple group; the group type for all but classic
* protocol, leader, generation: classic
* epoch, assignment_epoch: all but classic, of the group and of its target assignment (-1 once that is deleted)
* state_timestamp: classic, since when the group is in its state, in ms; null if unknown
* subscription, subscribed_topics: as the tables of `offsetlake.rules.subscriptions` say
* member_count
* log_partition; log_offset, log_timestamp: of the newest record of the group. A tombstone of a part the group does not
  have counts too: it had the part until compaction took its record. Null for a group that only commits have made

Consumer and streams states follow from epochs, as in a broker: no members is Empty; no topology is NotReady; a group
epoch ahead of the assignment epoch is Assigning; a member not stable at the assignment epoch makes it Reconciling.
A streams group of a broker that has just loaded its log stays NotReady until the first heartbeat brings the
cluster's topics in; here it counts as ready with its topology, as it will be.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from offsetlake.rules import subscriptions
from offsetlake.rules.group_members import GroupMember, GroupType, Row, Value, classic_member_row
from offsetlake.rules.subscriptions import Subscription


@dataclass(slots=True)
class GroupState:
    """One group, as a broker holds it that has loaded the log up to `log_offset`.

    * metadata: classic, the newest GroupMetadataValue; None for a group that only commits have made
    * epoch, assignment_epoch: of the other kinds
    * members, target_assignments: of the other kinds, by member id; either may be there without the other
    * regexes: consumer, the topics of each regular expression
    * topology: streams, the newest StreamsGroupTopologyValue

    Values stay as they came, by Kafka's field names, and are never changed in place.
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
    regexes: dict[str, list[str]] = field(default_factory=dict)
    topology: Value | None = None

    def is_simple(self) -> bool:
        """Tell whether the group only holds offsets: classic, with no protocol type and no members."""
        if self.group_type != "classic":
            return False
        return self.metadata is None or not (self.metadata["protocolType"] or self.metadata["members"])

    def to_dict(self) -> dict[str, Any]:
        """Give all of the state as plain, JSON-able dicts and lists, from which `from_dict` makes it again."""
        members = {name: {"metadata": of.metadata, "current": of.current} for name, of in self.members.items()}
        return {
            **{name: getattr(self, name) for name in self.__slots__},
            "members": members,
            "target_assignments": dict(self.target_assignments),
            "regexes": dict(self.regexes),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Make the state that `to_dict` gave."""
        members = {name: GroupMember(**values) for name, values in stored["members"].items()}
        copies = {name: dict(stored[name]) for name in ("target_assignments", "regexes")}
        return cls(**{**stored, **copies, "members": members})

    def row(self) -> Row:
        """Give the group's row of table `groups`: the columns above."""
        classic = self.group_type == "classic"
        metadata = self.metadata or {}
        state_timestamp = metadata.get("currentStateTimestamp", -1)
        subscription, topics = self._subscription()
        only_commits = classic and self.metadata is None
        return {
            "group_id": self.group_id,
            "group_type": self.group_type,
            "state": self._state(),
            "protocol_type": (metadata.get("protocolType") or None) if classic else self.group_type,
            "protocol": metadata.get("protocol"),
            "leader": metadata.get("leader"),
            "generation": metadata.get("generation"),
            "epoch": None if classic else self.epoch,
            "assignment_epoch": None if classic else self.assignment_epoch,
            "state_timestamp": None if state_timestamp == -1 else state_timestamp,
            "subscription": subscription,
            "subscribed_topics": topics,
            "member_count": len(self._classic_members()) if classic else len(self.members),
            "log_partition": self.log_partition,
            "log_offset": None if only_commits else self.log_offset,
            "log_timestamp": None if only_commits else self.log_timestamp,
        }

    def member_rows(self) -> list[Row]:
        """Give the rows of table `group_members`, by member id: the columns of `offsetlake.rules.group_members`."""
        if self.metadata is not None:
            protocol_type, classic = self.metadata["protocolType"], sorted(self._classic_members().items())
            return [classic_member_row(self.group_id, protocol_type, member) for _, member in classic]
        return [
            member.row(self.group_id, self.group_type, member_id, self.target_assignments.get(member_id))
            for member_id, member in sorted(self.members.items())
        ]

    def _classic_members(self) -> dict[str, Value]:
        members = [] if self.metadata is None else self.metadata["members"]
        return {member["memberId"]: member for member in members}

    def _state(self) -> str:
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

    def _subscription(self) -> Subscription:
        if self.group_type == "classic":
            return subscriptions.of_classic_group(self.metadata)
        if self.group_type == "streams":
            topology = self.topology if self.members else None
            return subscriptions.NOTHING if topology is None else subscriptions.of_topology(topology)
        metadata = (member.metadata for member in self.members.values() if member.metadata is not None)
        return subscriptions.of_members(metadata, self.regexes)
