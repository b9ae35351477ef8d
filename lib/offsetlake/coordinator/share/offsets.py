"""Requests about the start offsets of a share group, which the share coordinator stores (`GroupMetadataManager`).

Each of them has two steps: before and after the share coordinator has changed the states of the share partitions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from offsetlake.coordinator.epoch_groups.assignment import Assignment
from offsetlake.coordinator.epoch_groups.requests import RequestError
from offsetlake.coordinator.share.group import ShareGroup
from offsetlake.coordinator.share.requests import Initialization
from offsetlake.coordinator.share.topics import ShareTopics, TopicPartitions, combined
from offsetlake.coordinator.steps import Step, Token
from offsetlake.kafka import error_codes

NOT_EMPTY = "The group is not empty."
NO_PARTITION = "This server does not host this topic-partition."
_NO_OFFSETS = "There is no offset information to delete."


class AnyGroup(Protocol):
    """A group of any type."""

    group_id: str
    exists: bool


class TopicError(NamedTuple):
    """An error of a topic."""

    error_code: int
    error_message: str


@dataclass(frozen=True, slots=True)
class OffsetsReply:
    """The reply to the first step of a request about start offsets.

    Attributes:
        error: The error of the request as a whole.
        topic_ids: The topic ID by topic name, for topics that exist.
        unknown: The partitions that do not exist, by topic name, if start offsets are altered.
        initialization: The share partitions whose state is to be initialized.
        topic_errors: The errors of topics by name, if start offsets are deleted.
        deletion: The share partitions whose state is to be deleted.
    """

    error: RequestError | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, frozenset[int]] = field(default_factory=dict)
    initialization: Initialization | None = None
    topic_errors: Sequence[tuple[str, TopicError]] = ()
    deletion: Assignment = field(default_factory=dict)


def alter(step: Step, group: AnyGroup, topics: Mapping[str, Mapping[int, int]], token: Token) -> None:
    """Begin to set start offsets, by topic and partition, of a group without members, which may not exist yet.

    The reply is an OffsetsReply.
    """
    try:
        step.reply(token, _alter(step, _empty(group), topics))
    except RequestError as error:
        step.reply(token, OffsetsReply(error))


def _alter(step: Step, group: ShareGroup, topics: Mapping[str, Mapping[int, int]]) -> OffsetsReply:
    added: dict[str, TopicPartitions] = {}
    offsets: dict[str, dict[int, int]] = {}
    topic_ids: dict[str, str] = {}
    unknown: dict[str, frozenset[int]] = {}
    for name, partitions in topics.items():
        count, topic_id = step.topics.partitions(name), step.topics.id_of(name)
        known = {partition: offset for partition, offset in partitions.items() if 0 <= partition < count}
        unknown[name] = frozenset(partitions.keys() - known.keys())
        if topic_id is not None:
            topic_ids[name], added[topic_id] = topic_id, TopicPartitions(name, frozenset(known))
            if known:
                offsets[topic_id] = known
    if added:
        group.write_topics(step, group.topics.initialize(added))
    initialization = Initialization(group.state.epoch, offsets) if offsets else None
    return OffsetsReply(topic_ids=topic_ids, unknown=unknown, initialization=initialization)


def delete(step: Step, group: AnyGroup, names: Sequence[str], token: Token) -> None:
    """Begin to delete the start offsets of topics of a group without members; the reply is an OffsetsReply."""
    try:
        step.reply(token, _delete(step, _empty(group), names))
    except RequestError as error:
        step.reply(token, OffsetsReply(error))


def _delete(step: Step, group: ShareGroup, names: Sequence[str]) -> OffsetsReply:
    if not group.exists:
        raise RequestError(error_codes.GROUP_ID_NOT_FOUND, f"Group {group.group_id} not found.")
    if group.state.share_topics is None:
        return OffsetsReply()
    topics = group.topics
    deletion: dict[str, frozenset[int]] = {}
    topic_ids: dict[str, str] = {}
    errors: list[tuple[str, TopicError]] = []
    for name in names:
        topic_id = step.topics.id_of(name)
        if topic_id is None:
            errors.append((name, TopicError(error_codes.UNKNOWN_TOPIC_OR_PARTITION, NO_PARTITION)))
        elif topic_id in topics.initialized:
            topic_ids[name], deletion[topic_id] = topic_id, topics.initialized[topic_id].partitions
            topics = topics.delete([topic_id])
        elif topic_id in topics.deleting:
            topic_ids[name] = topic_id
            deletion.setdefault(topic_id, frozenset(range(step.topics.partitions(name))))
        else:
            errors.append((name, TopicError(error_codes.UNKNOWN_TOPIC_OR_PARTITION, _NO_OFFSETS)))
    group.write_topics(step, topics)
    return OffsetsReply(topic_ids=topic_ids, topic_errors=errors, deletion=deletion)


def delete_all(step: Step, group: AnyGroup, token: Token) -> None:
    """Begin to delete all states of a group, before the group is deleted; the reply is an OffsetsReply.

    There is nothing to do for a group of another type, or one without states.
    """
    if not isinstance(group, ShareGroup) or not group.exists:
        step.reply(token, OffsetsReply())
    elif group.state.members:
        step.reply(token, OffsetsReply(RequestError(error_codes.NON_EMPTY_GROUP, NOT_EMPTY)))
    elif group.state.share_topics is None:
        step.reply(token, OffsetsReply())
    else:
        step.reply(token, _delete_all(step, group))


def _delete_all(step: Step, group: ShareGroup) -> OffsetsReply:
    names = {topic_id: step.topics.name_of(topic_id) for topic_id in group.topics.deleting}
    again = {
        topic_id: TopicPartitions(name, frozenset(range(step.topics.partitions(name))))
        for topic_id, name in names.items()
        if name is not None
    }
    deleted = combined(combined(group.topics.initialized, group.topics.initializing), again)
    group.write_topics(step, ShareTopics(deleting=frozenset(deleted)), lambda topic_id: deleted[topic_id].name)
    return OffsetsReply(deletion={topic_id: topic.partitions for topic_id, topic in deleted.items()})


def initialized(step: Step, group: AnyGroup, partitions: Assignment) -> None:
    """Record that the share coordinator has initialized share partitions."""
    if isinstance(group, ShareGroup) and group.exists:
        group.write_topics(step, group.topics.complete(partitions, step.topics.name_of))


def not_initialized(step: Step, group: AnyGroup, partitions: Assignment) -> None:
    """Record that the share coordinator could not initialize share partitions: the next heartbeat tries it again."""
    if isinstance(group, ShareGroup) and group.topics.initializing:
        group.write_topics(step, group.topics.abandon(partitions))


def deleted(step: Step, group: AnyGroup, topic_ids: Sequence[str]) -> None:
    """Record that the share coordinator has deleted the states of topics."""
    if isinstance(group, ShareGroup) and group.state.share_topics is not None:
        group.write_topics(step, group.topics.deleted(topic_ids))


def topics_deleted(step: Step, group: AnyGroup, topic_ids: Iterable[str]) -> None:
    """Remove topics that were deleted; the share coordinator deletes their states by itself."""
    if isinstance(group, ShareGroup) and (deleted_ids := group.topics.ids().intersection(topic_ids)):
        group.write_topics(step, group.topics.forget(deleted_ids))


def _empty(group: AnyGroup) -> ShareGroup:
    """Return a share group without members.

    Raises:
        RequestError: The group has another type, or members.
    """
    if not isinstance(group, ShareGroup):
        raise RequestError(error_codes.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a share group.")
    if group.state.members:
        raise RequestError(error_codes.NON_EMPTY_GROUP, NOT_EMPTY)
    return group
