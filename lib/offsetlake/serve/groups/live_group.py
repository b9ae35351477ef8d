"""A group that the core coordinates, with the steps whose records are not durable yet."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from offsetlake.coordinator import groups
from offsetlake.coordinator.groups import Group, Kind
from offsetlake.coordinator.steps import Step, Token
from offsetlake.serve.groups.group_writes import GroupWrite
from offsetlake.serve.groups.rewinds import RequestedRewind
from offsetlake.serve.storage.group_details import CommitSender, GroupKind

_GROUP_BYTES = 2_000  # of the objects of a group without members


class QueuedStep(NamedTuple):
    """A step whose records are queued, the replies that wait for them, and what restores the state if they fail.

    `offsets` are those at the beginning of the records, if the step sets some while members run.
    """

    write: GroupWrite | None
    replies: list[tuple[Token, object]]
    undo: list[Callable[[Step, int], None]]
    offsets: RequestedRewind | None = None


def is_live_kind(kind: GroupKind) -> bool:
    """Return whether a group of the snapshot has members that this process coordinates."""
    return kind["state"] != "Empty" and groups.is_coordinated(kind["group_type"])


class LiveGroup:
    """A group of the core.

    | Field       | Description |
    |-------------|-------------|
    | name        | The group id as UTF-8 bytes |
    | group       | Its state, which includes the queued steps |
    | kind        | What ListGroups and the checks of commits need of it |
    | queued      | The steps whose records are not durable, in their order |
    | last_offset | The log offset of the newest record that this process has written, -1 without one |
    | size_bytes  | Its approximate memory |
    """

    __slots__ = ("_last_kind", "group", "kind", "last_offset", "name", "queued", "size_bytes")

    def __init__(self, name: bytes, group: Group) -> None:
        self.name, self.group = name, group
        self.kind: GroupKind = {"group_type": "", "state": "", "protocol_type": None, "protocol": None}
        self._last_kind: Kind | None = None
        self.queued: list[QueuedStep] = []  # of few steps; an empty deque takes 600 bytes
        self.size_bytes, self.last_offset = 0, -1
        self.update()

    def update(self) -> int:
        """Derive the kind and the size from the state of the group; return by how much the size has grown."""
        kind = groups.kind(self.group)
        if kind != self._last_kind:
            group_type, state, protocol_type, protocol = self._last_kind = kind
            self.kind = {
                "group_type": group_type,
                "state": state,
                "protocol_type": protocol_type,
                "protocol": protocol,
            }
        before, self.size_bytes = self.size_bytes, _GROUP_BYTES + len(self.name) + self.group.size_bytes
        return self.size_bytes - before

    def commit_error(self, committer: CommitSender, version: int, *, transactional: bool) -> int:
        """Return the error code of a commit, NONE if it is accepted."""
        instance = None if committer.instance is None else committer.instance.decode(errors="replace")
        sender = groups.Committer(committer.member.decode(errors="replace"), instance, committer.generation)
        return groups.commit_error(self.group, sender, version, transactional=transactional)

    def fetch_error(self, committer: CommitSender) -> int:
        """Return the error code of an OffsetFetch with a member, NONE if it is accepted."""
        return groups.fetch_error(self.group, committer.member.decode(errors="replace"), committer.generation)

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members use a topic, or might because their subscriptions are unknown."""
        return self.group.is_subscribed_to(topic)

    def has_queued_records(self) -> bool:
        """Return whether records of the group are not durable yet."""
        return bool(self.queued)


class LoadingGroups(Mapping[bytes, LiveGroup]):
    """The live groups while groups are loaded: `load` returns a group that is looked up, None if it is not live."""

    def __init__(self, loaded: Mapping[bytes, LiveGroup], load: Callable[[bytes], LiveGroup | None]) -> None:
        self._loaded, self._load = loaded, load

    def __getitem__(self, name: bytes) -> LiveGroup:
        """Return a live group, which is loaded if necessary."""
        live = self._load(name)
        if live is None:
            raise KeyError(name)
        return live

    def __iter__(self) -> Iterator[bytes]:
        """Yield the names of the groups that are loaded."""
        return iter(self._loaded)

    def __len__(self) -> int:
        """Return the number of groups that are loaded."""
        return len(self._loaded)
