"""The APIs that describe groups: their state and members, according to the latest records of the log."""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kio.schema.consumer_protocol_assignment.v0 import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_subscription.v0 import ConsumerProtocolSubscription
from kio.schema.consumer_protocol_subscription.v3 import ConsumerProtocolSubscription as ConsumerProtocolSubscription3

from offsetlake.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_AUTHORIZATION_FAILED,
    GROUP_ID_NOT_FOUND,
    INVALID_GROUP_ID,
)
from offsetlake.kafka.uuid import uuid_bytes
from offsetlake.serve.auth.acl import READ
from offsetlake.serve.auth.principals import RequestContext
from offsetlake.serve.protocol.encoding import Lazy, Values, encoded
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.protocol.wire import Malformed
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
_ASSIGNOR = "uniform"  # the first of group.consumer.assignors of a broker


class GroupApis:
    """Answers DescribeGroups and ConsumerGroupDescribe."""

    def __init__(self, store: Store, topics: Topics) -> None:
        self._store, self._topics = store, topics

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
        if self._store.loading:
            return described | {"error_code": COORDINATOR_LOAD_IN_PROGRESS}
        group = self._store.group(group_id.encode())
        if group is None or group["group_type"] != "classic":
            described["group_state"] = "Dead"
            if version < _NOT_FOUND_SINCE:
                return described
            return described | _not_found(group_id, group, "classic")
        stable = group["state"] == "Stable"
        members = self._store.members(group_id.encode()).get("members", ())
        return described | {
            "group_state": group["state"],
            "protocol_type": group["protocol_type"] or "",
            "protocol_data": group["protocol"] or "" if stable else "",
            "members": [_classic_member(member, stable=stable) for member in members],
        }

    def _consumer(self, group_id: str) -> dict[str, Any]:
        described = _CONSUMER_GROUP | {"group_id": group_id}
        if not group_id:
            return described | {"error_code": INVALID_GROUP_ID}
        if self._store.loading:
            return described | {"error_code": COORDINATOR_LOAD_IN_PROGRESS}
        group = self._store.group(group_id.encode())
        if group is None or group["group_type"] != _CONSUMER:
            return described | _not_found(group_id, group, "consumer")
        details = self._store.members(group_id.encode())
        members = details.get("members", ())
        names = self._names(group["state"], details) if members else {}
        assignors = Counter(member["server_assignor"] for member in members if member["server_assignor"])
        return described | {
            "group_state": group["state"],
            "group_epoch": details.get("epoch") or 0,
            "assignment_epoch": details.get("assignment_epoch") or 0,
            "assignor_name": assignors.most_common(1)[0][0] if assignors else _ASSIGNOR,
            "members": [_consumer_member(member, names) for member in members],
        }

    def _names(self, state: str, details: Mapping[str, Any]) -> dict[str, bytes]:
        """Return the names of the topics that are assigned to members, by the text of their ids.

        The log does not contain the names. They are known from commits with topic ids, and if a stable group subscribes
        to one topic and one topic is assigned.
        """
        fields = ("assignment", "target_assignment")
        entries = [entry for member in details["members"] for field in fields for entry in member[field] or ()]
        ids = {entry["topic_id"]: self._topics.name_of(uuid_bytes(entry["topic_id"])) for entry in entries}
        subscribed: list[str] = details["subscribed_topics"] or []
        if state == "Stable" and len(ids) == len(subscribed) == 1:
            return {id_: subscribed[0].encode() for id_ in ids}
        return {id_: name for id_, name in ids.items() if name is not None}


def _consumer_member(member: Mapping[str, Any], names: Mapping[str, bytes]) -> Values:
    classic = member["session_timeout_ms"] is not None
    return {
        "member_id": member["member_id"],
        "instance_id": member["group_instance_id"],
        "rack_id": member["rack_id"],
        "member_epoch": member["member_epoch"],
        "client_id": member["client_id"] or "",
        "client_host": member["client_host"] or "",
        "subscribed_topic_names": member["subscribed_topics"] or (),
        "subscribed_topic_regex": member["subscribed_regex"] or "",
        "assignment": _assignment(member["assignment"] or (), names),
        "target_assignment": _assignment(member["target_assignment"] or (), names),
        "member_type": _CLASSIC_MEMBER if classic else _CONSUMER_MEMBER,
    }


def _assignment(entries: Iterable[Mapping[str, Any]], names: Mapping[str, bytes]) -> Values:
    """Return an assignment without topics whose names are unknown; a broker omits deleted topics likewise."""
    return {
        "topic_partitions": [
            {
                "topic_id": uuid.UUID(bytes=uuid_bytes(entry["topic_id"])),
                "topic_name": names[entry["topic_id"]].decode(),
                "partitions": entry["partitions"],
            }
            for entry in entries
            if entry["topic_id"] in names
        ]
    }


def _check_unique(group_ids: Sequence[str]) -> None:
    """Raise Malformed if a group is named twice: each time, a few bytes would cause a description of all members."""
    if len({*group_ids}) < len(group_ids):
        raise Malformed("the request names a group twice")


def _not_found(group_id: str, group: Mapping[str, Any] | None, wanted: str) -> dict[str, Any]:
    name = group_id[:_MAX_NAME_CHARACTERS]
    message = f"Group {name} not found." if group is None else f"Group {name} is not a {wanted} group."
    return {"error_code": GROUP_ID_NOT_FOUND, "error_message": message}


def _operations(request: Any) -> dict[str, int]:
    requested = getattr(request, "include_authorized_operations", False)
    return {"authorized_operations": _READ_DELETE_DESCRIBE if requested else _NO_BITS}


def _classic_member(member: Mapping[str, Any], *, stable: bool) -> Values:
    """Return the description of a member, with its subscription and assignment only if the group is stable."""
    return {
        "member_id": member["member_id"],
        "group_instance_id": member["group_instance_id"],
        "client_id": member["client_id"] or "",
        "client_host": member["client_host"] or "",
        "member_metadata": _subscription(member) if stable else b"",
        "member_assignment": _assigned(member) if stable else b"",
    }


def _subscription(member: Mapping[str, Any]) -> bytes:
    """Return the encoded subscription of a member, as far as the tables contain it: topics and rack."""
    topics, rack = member["subscribed_topics"], member["rack_id"]
    if topics is None:
        return b""
    values = {"topics": topics, "user_data": None, "owned_partitions": (), "rack_id": rack}
    if rack is None:
        return _blob(ConsumerProtocolSubscription, 0, values)
    return _blob(ConsumerProtocolSubscription3, 3, values)


def _assigned(member: Mapping[str, Any]) -> bytes:
    entries = member["assignment"]
    return b"" if entries is None else _blob(ConsumerProtocolAssignment, 0, {"assigned_partitions": entries})


def _blob(schema: Any, version: int, values: Values) -> bytes:
    return version.to_bytes(2, "big") + encoded(schema, values)
