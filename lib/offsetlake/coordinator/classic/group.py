"""The state of a classic group (Kafka's `ClassicGroup`) and the changes to its members.

The members, their assignments, the generation and the protocol of a Stable group are in the log. All other state is
volatile, as in a broker: the rebalance in progress, and member IDs whose members have not joined yet.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from offsetlake.coordinator.classic.member import ClassicMember, first_of_each
from offsetlake.coordinator.classic.protocols import ProtocolCounts, select_protocol, subscribed_topics
from offsetlake.coordinator.hash_order import hash_code, hash_order
from offsetlake.coordinator.rewind import Rewind
from offsetlake.coordinator.steps import Token
from offsetlake.kafka.error_codes import FENCED_INSTANCE_ID, NONE, UNKNOWN_MEMBER_ID

CONSUMER_PROTOCOL_TYPE = "consumer"

_PENDING_OVERHEAD_BYTES = 100  # as measured with tracemalloc


class ClassicState(Enum):
    """The states of a classic group, with the names that brokers report."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members join; the generation is the previous one."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The members of the generation are known; the leader has not sent their assignments yet."""
    STABLE = "Stable"


class InitialDelay(NamedTuple):
    """The delay of the first rebalance of an Empty group, and for how long it can still be extended."""

    delay_ms: int
    remaining_ms: int


@dataclass(slots=True)
class ClassicGroup:
    """One group.

    Attributes:
        exists: Whether the group exists for clients: it has a record, or commits if it is a simple group. A host that
            finds it False after a step does not keep the group.
        state_timestamp_ms: When the group entered its state; None if unknown.
        protocol: The protocol of the generation; None if there is none.
        leader_id: The member ID of the leader.
        static_ids: Member IDs by instance ID.
        pending_joins: Member IDs that were given to clients that have not joined with them yet.
        pending_syncs: The members of the generation that have not sent SyncGroup.
        joins_waiting: The number of members that wait for the reply to JoinGroup.
        subscribed_topics: The topics that the members of the generation subscribe to; None if unknown.
        initial_delay: Set in the first rebalance of an Empty group.
        member_added: Whether a member was added during an initial delay that was not extended since.
        reason: Why the newest rebalance was started.
        rewind: The offsets that are set in the rebalance in progress.
        size_bytes: About how much memory the members and pending IDs occupy; the group itself occupies 1 KB.
    """

    group_id: str
    exists: bool = False
    state: ClassicState = ClassicState.EMPTY
    state_timestamp_ms: int | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    generation: int = 0
    leader_id: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    pending_joins: set[str] = field(default_factory=set)
    pending_syncs: set[str] = field(default_factory=set)
    joins_waiting: int = 0
    subscribed_topics: frozenset[str] | None = None
    initial_delay: InitialDelay | None = None
    member_added: bool = False
    reason: str = ""
    rewind: Rewind | None = None
    size_bytes: int = 0
    _protocol_counts: ProtocolCounts = field(default_factory=ProtocolCounts)

    def is_empty(self) -> bool:
        """Return whether the group is Empty, so that it can be deleted and its offsets can be set by anyone."""
        return self.state is ClassicState.EMPTY

    def is_simple(self) -> bool:
        """Return whether the group has only commits: neither a protocol type nor members nor pending ones."""
        return self.protocol_type is None and self.is_empty() and not self.pending_joins

    def uses_consumer_protocol(self) -> bool:
        """Return whether the members are consumers, whose subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_leader(self, member_id: str) -> bool:
        """Return whether a member is the leader."""
        return self.leader_id == member_id

    def is_awaiting_joins(self) -> bool:
        """Return whether a member has not joined the rebalance, or has only received its ID yet."""
        return len(self.members) != self.joins_waiting or bool(self.pending_joins)

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members use a topic, or might because their subscriptions are unknown."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol()
        return topic in self.subscribed_topics

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members, at least 0."""
        return max((0, *(member.rebalance_timeout_ms for member in self.members.values())))

    def member_error(self, member_id: str, instance_id: str | None) -> int:
        """Return NONE, or why a request is not from a member."""
        if instance_id is not None:
            current_id = self.static_ids.get(instance_id)
            if current_id is not None and current_id != member_id:
                return FENCED_INSTANCE_ID
            if current_id is None:
                return UNKNOWN_MEMBER_ID
        return NONE if member_id in self.members else UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Return whether a member with these protocols can join."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type and protocols)
        names = (name for name, _ in protocols)
        return self.protocol_type == protocol_type and self._protocol_counts.supports_any(names, len(self.members))

    def selected_protocol(self) -> str:
        """Return the protocol that a next generation of the present members has."""
        return select_protocol(self.members.values(), self._protocol_counts)

    def transition_to(self, state: ClassicState, now_ms: int) -> None:
        """Enter a state."""
        self.state = state
        self.state_timestamp_ms = now_ms

    def next_generation(self, now_ms: int) -> None:
        """Start the next generation with the present members: Empty or CompletingRebalance."""
        self.generation += 1
        self.protocol = self.selected_protocol() if self.members else None
        self.compute_subscribed_topics()
        self.transition_to(ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY, now_ms)

    def compute_subscribed_topics(self) -> None:
        """Determine `subscribed_topics` from the metadata of the members."""
        self.subscribed_topics = None
        if self.uses_consumer_protocol() and (self.protocol is not None or not self.members):
            metadata = {member.protocols[self.protocol or ""] for member in self.members.values()}
            self.subscribed_topics = subscribed_topics(metadata)

    def add_pending(self, member_id: str) -> None:
        """Add an ID whose member has not joined yet."""
        self.pending_joins.add(member_id)
        self.size_bytes += pending_size_bytes(member_id)

    def remove_pending(self, member_id: str) -> None:
        """Remove the ID of a member that joined or did not join in time; ignore other IDs."""
        if member_id in self.pending_joins:
            self.pending_joins.remove(member_id)
            self.size_bytes -= pending_size_bytes(member_id)

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Add a member, which is the leader if it is the first."""
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._protocol_counts.add(member.protocols)
        self.joins_waiting += member.join_token is not None
        self.remove_pending(member.member_id)
        self.size_bytes += member.size_bytes()

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending ID, if there is one; the leader is replaced by any other member."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._protocol_counts.remove(member.protocols)
            self.joins_waiting -= member.join_token is not None
            if member.instance_id is not None:
                self.static_ids.pop(member.instance_id, None)
            self.size_bytes -= member.size_bytes()
        if self.is_leader(member_id):
            self.leader_id = next(iter(self._in_order()), None)
        self.remove_pending(member_id)

    def update(
        self,
        member: ClassicMember,
        protocols: tuple[tuple[str, bytes], ...],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        """Replace what a member sends in JoinGroup."""
        self.size_bytes -= member.size_bytes()
        self._protocol_counts.remove(member.protocols)
        member.protocols = first_of_each(protocols)
        self._protocol_counts.add(member.protocols)
        self.size_bytes += member.size_bytes()
        member.session_timeout_ms, member.rebalance_timeout_ms = session_timeout_ms, rebalance_timeout_ms

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """Replace the ID of a static member."""
        old_id = member.member_id
        del self.members[old_id]
        self.members[member_id] = member
        self.static_ids[member.instance_id or ""] = member_id
        if self.is_leader(old_id):
            self.leader_id = member_id
        self.size_bytes -= member.size_bytes()
        member.member_id = member_id
        self.size_bytes += member.size_bytes()

    def assign(self, member: ClassicMember, assignment: bytes) -> None:
        """Set the assignment of a member."""
        self.size_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def set_join_token(self, member: ClassicMember, token: Token | None) -> None:
        """Set or clear the JoinGroup request that a member waits in."""
        self.joins_waiting += (token is not None) - (member.join_token is not None)
        member.join_token = token

    def elect_joined_leader(self) -> bool:
        """Replace the leader by a member that has joined, unless it has joined itself; return False if none has."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join_token is not None:
            return True
        joined = next((name for name in self._in_order() if self.members[name].join_token is not None), None)
        if joined is not None:
            self.leader_id = joined
        return joined is not None

    def _in_order(self) -> list[str]:
        """Return the IDs of the members in the order in which a broker looks for a leader."""
        return hash_order(self.members.keys(), hash_code)


def pending_size_bytes(member_id: str) -> int:
    """Return about how much memory the ID of a member that has not joined yet occupies."""
    return _PENDING_OVERHEAD_BYTES + len(member_id.encode())
