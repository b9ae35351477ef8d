"""The APIs that describe groups: their state and members, according to the latest records of the log."""

from collections.abc import Sequence
from typing import Any

from offsetlake.auth.acl import READ
from offsetlake.coordinator.classic.administration import DescribedMember, describe
from offsetlake.coordinator.classic.group import ClassicGroup
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.share.group import ShareGroup
from offsetlake.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    GROUP_ID_NOT_FOUND,
    INVALID_GROUP_ID,
    TOPIC_AUTHORIZATION_FAILED,
)
from offsetlake.rules.groups.state import UNKNOWN
from offsetlake.serve.groups.descriptions import described as describe_with_epochs
from offsetlake.serve.groups.membership import Membership
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.handlers import Handlers, at_once
from offsetlake.serve.protocol.api_keys import CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS, SHARE_GROUP_DESCRIBE
from offsetlake.serve.protocol.encoding import Lazy, Values
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.protocol.wire import Malformed
from offsetlake.serve.storage.group_details import GroupKind
from offsetlake.serve.storage.store import Store

_READ_DELETE_DESCRIBE = 1 << 3 | 1 << 6 | 1 << 8
_NO_BITS = -(2**31)
_MAX_NAME_CHARACTERS = 8_000  # of a name in an error message: clients cannot read strings above 32,767 bytes
_NOT_FOUND_SINCE = 6  # version of DescribeGroups that returns GROUP_ID_NOT_FOUND
_CONSUMER = "consumer"
_CLASSIC: dict[str, Any] = {"group_state": "", "protocol_type": "", "protocol_data": "", "members": []}
_CONSUMER_GROUP: dict[str, Any] = {
    "group_state": "", "group_epoch": 0, "assignment_epoch": 0, "assignor_name": "", "members": [],
}  # fmt: skip
"""The fields of a group that is not described because of an error."""

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
_DENIED_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
_ASSIGNOR = "uniform"  # the first of group.consumer.assignors of a broker


class GroupApis:
    """Answers DescribeGroups, ConsumerGroupDescribe and ShareGroupDescribe."""

    def __init__(self, store: Store, topics: Topics, membership: Membership) -> None:
        self._store, self._topics, self._membership = store, topics, membership

    def handlers(self) -> Handlers:
        """Return the handlers by API key."""
        return {
            DESCRIBE_GROUPS: at_once(self.describe_groups),
            CONSUMER_GROUP_DESCRIBE: at_once(self.consumer_group_describe),
            SHARE_GROUP_DESCRIBE: at_once(self.share_group_describe),
        }

    def describe_groups(self, request: Any, context: RequestContext) -> Values:
        """Answer DescribeGroups; a group that is not of type classic is described as one that does not exist."""
        operations = _operations(request)
        _check_unique(request.groups)
        described = (
            self._denial(name, context) or self._classic(name, context.version) | operations for name in request.groups
        )
        return {"groups": Lazy(len(request.groups), described)}

    def consumer_group_describe(self, request: Any, context: RequestContext) -> Values:
        """Answer ConsumerGroupDescribe, for groups of type consumer."""
        operations = _operations(request)
        _check_unique(request.group_ids)
        described = (self._denial(name, context) or self._consumer(name) | operations for name in request.group_ids)
        return {"groups": Lazy(len(request.group_ids), described)}

    def share_group_describe(self, request: Any, context: RequestContext) -> Values:
        """Answer ShareGroupDescribe, for groups of type share."""
        operations = _operations(request)
        _check_unique(request.group_ids)
        described = (
            self._denial(name, context) or _share_denial(self._share(name), context) | operations
            for name in request.group_ids
        )
        return {"groups": Lazy(len(request.group_ids), described)}

    def _denial(self, group_id: str, context: RequestContext) -> Values | None:
        """Return the description of a group that the client may not read, whether it exists or not; None if it may."""
        if context.may(READ, group_id.encode()):
            return None
        return (
            _CLASSIC
            | _CONSUMER_GROUP
            | {"group_id": group_id, "error_code": GROUP_AUTHORIZATION_FAILED}
            | {"authorized_operations": _NO_BITS}
        )

    def _classic(self, group_id: str, version: int) -> dict[str, Any]:
        described = _CLASSIC | {"group_id": group_id}
        if error := self._store.unavailable(group_id.encode()):
            return described | {"error_code": error}
        group = self._store.group(group_id.encode())
        if group is None or group["group_type"] != "classic":
            described["group_state"] = "Dead"
            if version < _NOT_FOUND_SINCE:
                return described
            return described | _not_found(group_id, group, "classic")
        live = self._membership.live(group_id.encode())
        members = describe(live).members if isinstance(live, ClassicGroup) else ()
        return described | {
            "group_state": group["state"],
            "protocol_type": group["protocol_type"] or "",
            "protocol_data": group["protocol"] or "",
            "members": [_classic_member(member) for member in members],
        }

    def _consumer(self, group_id: str) -> dict[str, Any]:
        described = _CONSUMER_GROUP | {"group_id": group_id}
        if not group_id:
            return described | {"error_code": INVALID_GROUP_ID}
        if error := self._store.unavailable(group_id.encode()):
            return described | {"error_code": error}
        group = self._store.group(group_id.encode())
        if group is None or group["group_type"] != _CONSUMER:
            return described | _not_found(group_id, group, "consumer")
        live = self._membership.live(group_id.encode())
        if isinstance(live, ConsumerGroup):
            shared = describe_with_epochs(live, self._topics.descriptions(), self._membership.settings)
            return described | shared | self._unknown_state(group_id)
        details = self._store.details(group_id.encode())
        return described | {
            "group_state": group["state"],
            "group_epoch": details.get("epoch") or 0,
            "assignment_epoch": details.get("assignment_epoch") or 0,
            "assignor_name": self._membership.settings.consumer_assignors[0],
        }

    def _share(self, group_id: str) -> dict[str, Any]:
        described = _CONSUMER_GROUP | {"group_id": group_id}
        if not group_id:
            return described | {"error_code": INVALID_GROUP_ID}
        if error := self._store.unavailable(group_id.encode()):
            return described | {"error_code": error}
        kind = self._store.group(group_id.encode())
        group = None if kind is None or kind["group_type"] != "share" else self._membership.find(group_id.encode())
        if not isinstance(group, ShareGroup):
            return described | _not_found(group_id, kind, "share")
        shared = describe_with_epochs(group, self._topics.descriptions(), self._membership.settings)
        return described | shared | self._unknown_state(group_id)

    def _unknown_state(self, group_id: str) -> dict[str, Any]:
        """Return the state of a group that a record that cannot be decoded leaves unknown; nothing of others."""
        return {"group_state": UNKNOWN} if self._store.has_unknown_state(group_id.encode()) else {}


def _check_unique(group_ids: Sequence[str]) -> None:
    """Raise Malformed if a group is named twice: each time, a few bytes would cause a description of all members."""
    if len({*group_ids}) < len(group_ids):
        raise Malformed("the request names a group twice")


def _share_denial(group: dict[str, Any], context: RequestContext) -> dict[str, Any]:
    """Return the description of a share group, or only an error if a member reads a topic that the client may not."""
    topics = {topic["topic_name"] for each in group["members"] for topic in each["assignment"]["topic_partitions"]}
    if all(context.client.may_read_topic(topic.encode()) for topic in topics):
        return group
    denied = {"error_code": TOPIC_AUTHORIZATION_FAILED, "error_message": _DENIED_TOPICS}
    return _CONSUMER_GROUP | {"group_id": group["group_id"]} | denied


def _not_found(group_id: str, group: GroupKind | None, wanted: str) -> dict[str, Any]:
    name = group_id[:_MAX_NAME_CHARACTERS]
    message = f"Group {name} not found." if group is None else f"Group {name} is not a {wanted} group."
    return {"error_code": GROUP_ID_NOT_FOUND, "error_message": message}


def _operations(request: Any) -> dict[str, int]:
    requested = getattr(request, "include_authorized_operations", False)
    return {"authorized_operations": _READ_DELETE_DESCRIBE if requested else _NO_BITS}


def _classic_member(member: DescribedMember) -> Values:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }
