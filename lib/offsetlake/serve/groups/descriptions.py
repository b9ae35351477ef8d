"""Descriptions of consumer groups and share groups whose members this process coordinates."""

from typing import Any

from offsetlake.coordinator.consumer import describe
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.epoch_groups.describe import NameOf
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.share import describe as share
from offsetlake.coordinator.share.group import ShareGroup
from offsetlake.coordinator.topics import TopicDescriptions


def described(
    group: ConsumerGroup | ShareGroup, topics: TopicDescriptions, settings: CoordinatorSettings
) -> dict[str, Any]:
    """Return the fields of a group in ConsumerGroupDescribe or ShareGroupDescribe."""
    if isinstance(group, ShareGroup):
        return share.describe(group, _name_of(topics, _only(group, {*group.topics.initialized})))
    only = _only(group, {*group.target_owners, *group.partition_epochs})
    return describe.describe(group, _name_of(topics, only), settings)


def _only(group: ConsumerGroup | ShareGroup, assigned: set[str]) -> str | None:
    """Return the name of the only topic of a group.

    The log does not contain the names of topics. A broker's log may have ids that are not known here.
    """
    subscribed = group.subscriptions.topics()
    is_clear = group.state.state_name() == "Stable" and len(subscribed) == len(assigned) == 1
    return next(iter(subscribed)) if is_clear else None


def _name_of(topics: TopicDescriptions, only: str | None) -> NameOf:
    return lambda topic_id: topics.name_of(topic_id) or only
