"""The state of a classic group from its newest GROUP_METADATA record, when the host starts."""

import base64
from collections.abc import Callable, Mapping
from typing import Any

from offsetlake.coordinator.classic.answers import restart_session
from offsetlake.coordinator.classic.group import ClassicGroup, ClassicState
from offsetlake.coordinator.classic.member import ClassicMember
from offsetlake.coordinator.classic.rebalance.join_phase import prepare_rebalance
from offsetlake.coordinator.classic.records import NO_TIMESTAMP
from offsetlake.coordinator.steps import Step
from offsetlake.kafka.records.consumer_protocol import encode_assignment, encode_subscription

_NO_TIMEOUT = -1


def from_value(step: Step, group_id: str, value: Mapping[str, Any]) -> ClassicGroup:
    """Return the group of a GroupMetadataValue of any version: Stable, or Empty if it has no members.

    All sessions start anew. If the group has more members than the settings permit, a rebalance starts, in which the
    last members that join are refused.

    Args:
        step: The step, which receives the timers of the members.
        group_id: The ID of the group.
        value: The value; the subscriptions and assignments of members are bytes, or what `decode_record` returns, with
            bytes as base64 text where it was stored as JSON.
    """
    timestamp_ms = value.get("currentStateTimestamp", NO_TIMESTAMP)
    group = ClassicGroup(
        group_id,
        exists=True,
        state_timestamp_ms=None if timestamp_ms == NO_TIMESTAMP else timestamp_ms,
        protocol_type=value["protocolType"] or None,
        protocol=value["protocol"],
        generation=value["generation"],
        leader_id=value["leader"],
    )
    for member in {member["memberId"]: member for member in value["members"]}.values():
        group.add(_member(member, value["protocol"] or ""), value["protocolType"])
    if group.members:
        group.state = ClassicState.STABLE
    group.compute_subscribed_topics()
    for loaded in group.members.values():
        restart_session(step, group, loaded)
    if len(group.members) > step.settings.max_size:
        prepare_rebalance(step, group, f"the group has more than {step.settings.max_size} members")
    return group


def _member(value: Mapping[str, Any], protocol: str) -> ClassicMember:
    rebalance_timeout_ms = value.get("rebalanceTimeout", _NO_TIMEOUT)
    session_timeout_ms = value["sessionTimeout"]
    subscription = _blob(value, "subscription", encode_subscription)
    return ClassicMember(
        value["memberId"],
        value.get("groupInstanceId"),
        value["clientId"],
        value["clientHost"],
        session_timeout_ms,
        session_timeout_ms if rebalance_timeout_ms == _NO_TIMEOUT else rebalance_timeout_ms,
        {protocol: subscription},
        _blob(value, "assignment", lambda assignment: encode_assignment(assignment, subscription)),
    )


def _blob(member: Mapping[str, Any], name: str, encode: Callable[[Mapping[str, Any]], bytes]) -> bytes:
    """Return the bytes of a subscription or assignment; what was not decoded completely is stored as base64 text."""
    value = member.get(f"{name}Bytes", member[name])
    if isinstance(value, str):
        return base64.b64decode(value)
    return value if isinstance(value, bytes) else encode(value)
