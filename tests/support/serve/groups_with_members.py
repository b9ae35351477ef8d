"""Idle members of groups of a real broker: they join by single requests, and stay until their sessions expire."""

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from support.serve.broker_comparison import FIRST
from support.serve.wire_client import WireClient

Kind = Literal["classic", "static", "consumer", "share"]
GROUPS: dict[str, Kind] = {f"as-a-broker-{kind}": kind for kind in ("classic", "static", "consumer", "share")}
WITH_MEMBERS = {0, 22, 25, 35, 69, 82, 113}
"""The error codes that commits to groups with members can get, and NONE (0)."""

_JOIN_GROUP, _SYNC_GROUP, _CONSUMER_HEARTBEAT, _SHARE_HEARTBEAT = 11, 14, 68, 76
_SESSION, _REBALANCE = timedelta(minutes=30), timedelta(minutes=5)
_SUBSCRIPTION = b"\0\0" + b"\0\0\0\x01" + len(FIRST).to_bytes(2, "big") + FIRST.encode() + b"\xff\xff\xff\xff"


@dataclass(frozen=True, slots=True)
class Member:
    """A member that may commit: its id, its generation or member epoch, its instance id."""

    id: str
    epoch: int
    instance: str | None = None


def join(client: WireClient, kind: Kind, group: str) -> Member:
    """Join a group of a kind as its only member."""
    if kind == "consumer":
        return _heartbeat(client, _CONSUMER_HEARTBEAT, 1, group, {"rebalance_timeout": _REBALANCE})
    if kind == "share":
        return _heartbeat(client, _SHARE_HEARTBEAT, 1, group, {})
    instance = "an-instance" if kind == "static" else None
    version = 3 if instance is None else 5  # before version 4, one request assigns the member id and joins
    values: dict[str, Any] = {"group_id": group, "session_timeout": _SESSION, "rebalance_timeout": _REBALANCE}
    values |= {"member_id": "", "group_instance_id": instance, "protocol_type": "consumer"}
    values |= {"protocols": [{"name": "range", "metadata": _SUBSCRIPTION}]}
    joined = client.ask(_JOIN_GROUP, version, values)
    assert joined["error_code"] == 0, joined
    member = {"group_id": group, "generation_id": joined["generation_id"], "member_id": joined["member_id"]}
    assignments = [{"member_id": joined["member_id"], "assignment": b"\0\0\0\0\0\0\xff\xff\xff\xff"}]
    synced = client.ask(_SYNC_GROUP, 3, member | {"group_instance_id": instance, "assignments": assignments})
    assert synced["error_code"] == 0, synced
    return Member(joined["member_id"], joined["generation_id"], instance)


def _heartbeat(client: WireClient, api: int, version: int, group: str, fields: dict[str, Any]) -> Member:
    member = str(uuid.uuid4())
    values: dict[str, Any] = {"group_id": group, "member_id": member, "member_epoch": 0, "rack_id": None}
    values |= {"instance_id": None, "subscribed_topic_names": [FIRST]}
    values |= {"subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": []}
    answer = client.ask(api, version, values | fields)
    assert answer["error_code"] == 0, answer
    return Member(member, answer["member_epoch"])
