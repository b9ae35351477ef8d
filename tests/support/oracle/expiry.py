"""Computes in plain Python which tombstones a clean-up pass of a group coordinator would write.

Laid out as Kafka 4.2's `GroupCoordinatorShard.cleanupGroupMetadata` and `OffsetMetadataManager.cleanupExpiredOffsets`
are, not as the tables of the code under test.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Group:
    """A group of a coordinator; `members_topics` is None if the coordinator does not know the subscription."""

    group_type: str
    state: str
    protocol_type: str | None = None
    state_timestamp: int | None = None
    members_topics: Collection[str] | None = frozenset()
    any_topic: bool = False


@dataclass(frozen=True)
class Offset:
    """A stored offset."""

    commit_timestamp: int
    expire_timestamp: int | None = None


Key = tuple[str, int]  # topic, partition


@dataclass
class Tombstones:
    """The tombstones that the pass writes."""

    offsets: set[tuple[str, str, int]] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)


Policy = list[tuple[str, str, int]]
"""Group pattern, topic pattern, retention in ms: the first that fits."""


def cleanup_pass(
    groups: Mapping[str, Group],
    offsets: Mapping[str, Mapping[Key, Offset]],
    pending: Collection[tuple[str, str, int]],
    now: int,
    policy: Policy,
    doubted: Collection[tuple[str, str, int]] = (),
) -> Tombstones:
    """Run a pass over all groups; `pending` are the keys in open transactions.

    A coordinator cannot load what it cannot read. The pass leaves alone groups of the state Unknown, and offsets that
    are `doubted`, as it does those in open transactions.
    """
    written = Tombstones()
    for name, group in groups.items():
        if group.group_type == "share" or group.state == "Unknown":
            continue
        all_expired = _cleanup_offsets(name, group, offsets.get(name, {}), {*pending, *doubted}, now, policy, written)
        if all_expired and group.state == "Empty":
            written.groups.add(name)
    return written


@dataclass(frozen=True)
class ShareGroup:
    """A share group or another group; None is a record without a timestamp.

    `changed` is when its newest record was written, and `updated` when each of its share partitions was last updated.
    """

    group_type: str
    state: str
    changed: int | None
    updated: Collection[int | None] = ()


def idle_share_groups(groups: Mapping[str, ShareGroup], now: int, idle: int) -> set[str]:
    """Return the share groups that nobody has used for so long, of those where that is known."""
    return {
        name
        for name, group in groups.items()
        if (group.group_type, group.state) == ("share", "Empty")
        and all(at is not None and now - at >= idle for at in (group.changed, *group.updated))
    }


def _cleanup_offsets(
    name: str,
    group: Group,
    offsets: Mapping[Key, Offset],
    pending: Collection[tuple[str, str, int]],
    now: int,
    policy: Policy,
    written: Tombstones,
) -> bool:
    has_pending = any(held == name for held, _, _ in pending)
    if not offsets:
        return not has_pending
    base = _base_timestamp(group)
    if base is None:
        return False
    all_expired = True
    for (topic, partition), offset in offsets.items():
        retention = next(
            ms for like, topic_like, ms in policy if fnmatchcase(name, like) and fnmatchcase(topic, topic_like)
        )
        if offset.expire_timestamp is not None:
            over = now >= offset.expire_timestamp
        else:
            over = now - base(offset) >= retention
        if not _subscribed(group, topic) and over and (name, topic, partition) not in pending:
            written.offsets.add((name, topic, partition))
        else:
            all_expired = False
    return all_expired and not has_pending


def _base_timestamp(group: Group) -> Callable[[Offset], int] | None:
    def of_commit(offset: Offset) -> int:
        return offset.commit_timestamp

    if group.group_type != "classic" or group.protocol_type is None:
        return of_commit
    if group.state == "Empty":
        since = group.state_timestamp
        return of_commit if since is None else lambda _: since
    if group.protocol_type == "consumer" and group.members_topics is not None and group.state == "Stable":
        return of_commit
    return None


def _subscribed(group: Group, topic: str) -> bool:
    if group.any_topic:
        return True
    if group.group_type == "classic" and group.protocol_type != "consumer":
        return False
    return True if group.members_topics is None else topic in group.members_topics
