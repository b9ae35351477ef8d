"""Setting the offsets of a consumer group while its members run (`offsetlake.coordinator.rewind`).

While a rewind is in progress, the epoch of the target assignment is one below the group epoch, and the target does not
contain the partitions. When all owners have revoked them, the offsets are written. The next heartbeat computes a target
assignment with the partitions at the group epoch. So does the next heartbeat after a restart, which ends the rewind.
"""

from collections.abc import Mapping
from itertools import chain

from offsetlake.coordinator import rewind as rewinds
from offsetlake.coordinator.consumer import records
from offsetlake.coordinator.consumer.group import NO_EPOCH, ConsumerGroup
from offsetlake.coordinator.consumer.requests import STATIC_LEAVE_EPOCH
from offsetlake.coordinator.epoch_groups.assignment import NO_PARTITIONS, Assignment, Target
from offsetlake.coordinator.rewind import NOT_WRITTEN, Rewind, RewindReply
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.steps import Step
from offsetlake.coordinator.topics import TopicDescriptions

_FREE = {NO_EPOCH, STATIC_LEAVE_EPOCH}  # a static member that has left has revoked its partitions
_EPOCHS = 2  # one of the target assignment without the partitions, and one of the assignment with them


def start(step: Step, group: ConsumerGroup, rewind: Rewind) -> None:
    """Set offsets when the partitions have no owner; `settle` then writes them."""
    group.rewind = rewind
    if _is_owned(step, group, rewind):
        state = group.state
        group.append(step, [records.group_epoch(group.group_id, state.epoch + _EPOCHS, state.metadata_hash)])

        def undo(undo_step: Step, _error: int) -> None:
            if group.rewind is rewind:
                group.rewind = None
                undo_step.reply(rewind.token, RewindReply(NOT_WRITTEN))

        step.undo.append(undo)


def settle(step: Step, group: ConsumerGroup) -> None:
    """Write the offsets of the rewind in progress if the partitions have no owner any more."""
    rewind = group.rewind
    if rewind is not None and not _is_owned(step, group, rewind):
        rewinds.complete(step, rewind)
        group.rewind = None


def limit_ms(group: ConsumerGroup, settings: CoordinatorSettings) -> int:
    """Return after how long members that do not respond are removed."""
    rebalance_ms = max((0, *(member.rebalance_timeout_ms for member in group.members())))
    return settings.consumer_session_timeout_ms + rebalance_ms


def target_epoch(group: ConsumerGroup, epoch: int) -> int:
    """Return the epoch of the target assignment of a group epoch."""
    return epoch if group.rewind is None else epoch - 1


def without_partitions(
    rewind: Rewind, assigned: Mapping[str, Target], topics: TopicDescriptions
) -> Mapping[str, Target]:
    """Return assignments by member without the partitions whose offsets are about to be set."""
    revoked = _by_topic_id(rewind, topics)
    return {member_id: _without(assignment, revoked) for member_id, assignment in assigned.items()}


def _without(target: Target, revoked: Assignment) -> Target:
    if target.keys().isdisjoint(revoked):
        return target
    kept = {
        topic_id: tuple(number for number in numbers if number not in revoked.get(topic_id, NO_PARTITIONS))
        for topic_id, numbers in target.items()
    }
    return {topic_id: numbers for topic_id, numbers in kept.items() if numbers}


def _is_owned(step: Step, group: ConsumerGroup, rewind: Rewind) -> bool:
    """Return whether a member may own one of the partitions.

    A member with the classic protocol may own what it listed when it joined, even if that is not assigned to it: the
    assignments of a classic group that changed its protocol during a rebalance are not known.
    """
    assigned = any(
        group.partition_epoch(topic_id, partition) not in _FREE
        for topic_id, partitions in _by_topic_id(rewind, step.topics).items()
        for partition in partitions
    )
    classic = (member.classic_protocols for member in group.members() if member.uses_classic_protocol)
    return assigned or rewinds.list_as_owned(chain.from_iterable(each.values() for each in classic), rewind.partitions)


def _by_topic_id(rewind: Rewind, topics: TopicDescriptions) -> Assignment:
    """Return the partitions by topic ID; partitions of topics that do not exist have no owner."""
    ids = ((topics.id_of(topic), partitions) for topic, partitions in rewind.partitions.items())
    return {topic_id: partitions for topic_id, partitions in ids if topic_id is not None}
