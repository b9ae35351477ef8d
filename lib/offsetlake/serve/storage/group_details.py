"""The types of groups, members and senders of commits. Groups and members are rows of `groups` and `group_members`."""

from typing import NamedTuple, Protocol, TypedDict


class CommitSender(NamedTuple):
    """The sender of a commit as in the request: generation or member epoch (-1: none), member id, instance id."""

    generation: int
    member: bytes
    instance: bytes | None


NO_MEMBER = CommitSender(-1, b"", None)


class GroupKind(TypedDict):
    """What is known of every group: columns of `groups`."""

    group_type: str
    state: str
    protocol_type: str | None
    protocol: str | None


class StreamsMember(TypedDict):
    """A member of a streams group: columns of `group_members`."""

    member_id: str
    member_epoch: int | None


class GroupDetails(TypedDict, total=False):
    """What is known of groups that are not live, except for classic groups: columns of `groups`.

    The members are those of streams groups: groups whose members this process coordinates are live if they have some.
    """

    epoch: int | None
    assignment_epoch: int | None
    subscription: str
    subscribed_topics: list[str]
    members: list[StreamsMember]


class GroupWithMembers(Protocol):
    """A group whose members this process coordinates (`offsetlake.serve.groups.live_group.LiveGroup`)."""

    kind: GroupKind
    last_offset: int
    """The log offset of the newest record that this process has written, -1 without one."""

    def commit_error(self, committer: CommitSender, version: int, *, transactional: bool) -> int:
        """Return the error code of a commit, NONE if it is accepted."""

    def fetch_error(self, committer: CommitSender) -> int:
        """Return the error code of an OffsetFetch with a member, NONE if it is accepted."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members use a topic, or might."""

    def has_queued_records(self) -> bool:
        """Return whether records of the group are not durable yet."""
