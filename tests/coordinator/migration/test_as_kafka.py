"""Random walks with members of both protocols, as recorded from the GroupMetadataManager of Kafka 4.2.0.

`tests/support/coordinator/java/KafkaGroups.java` recorded the replies and the records. Each walk starts with `reset`.
"""

import base64
import uuid
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from offsetlake.coordinator.classic.requests import (
    ClassicHeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    SyncReply,
    SyncRequest,
)
from offsetlake.coordinator.migration import requests
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.steps import Record
from offsetlake.kafka.records.consumer_protocol import decode_assignment
from offsetlake.kafka.uuid import uuid_text
from support.coordinator.consumer_groups import Host
from support.coordinator.recorded_walks import CLIENT, Operation, assignment_of, change_topics, walks

FIXTURE = Path(__file__).parents[2] / "fixtures" / "mixed-groups-4.2.0.jsonl.gz"
PARTITION_LISTS = ("topicPartitions", "assignedPartitions", "partitionsPendingRevocation")


def _assignment(blob: bytes | str) -> Any:
    """Return an assignment of the classic protocol in any order of its topics."""
    data = base64.b64decode(blob) if isinstance(blob, str) else blob
    value, _ = decode_assignment(data)
    if value is None:
        return data
    return data[:2], sorted((topic["topic"], sorted(topic["partitions"])) for topic in value["assignedPartitions"])


def _text(blob: bytes | str) -> str:
    return blob if isinstance(blob, str) else base64.b64encode(blob).decode()


def _normal(record_type: int, key: Any, value: Any) -> Any:
    names = {name: text for name, text in key.items() if name not in {"group", "groupId"}}
    if value is None:
        return record_type, names, None
    fields = dict(value)
    for name in PARTITION_LISTS:
        if name in fields:
            fields[name] = sorted((topic["topicId"], sorted(topic["partitions"])) for topic in fields[name])
    if record_type == 2:
        members = [
            member | {"subscription": _text(member["subscription"]), "assignment": _assignment(member["assignment"])}
            for member in fields["members"]
        ]
        fields["members"] = sorted(members, key=lambda member: str(member["memberId"]))
    if record_type == 3:
        fields.setdefault("metadataHash", 0)
    return record_type, names, fields


def _in_order(records: Iterable[Any]) -> list[Any]:
    """Return records with those of the same type, one after the other, in the order of their members."""
    runs = groupby(records, key=lambda record: (record[0], record[2] is None))
    return [record for _, run in runs for record in sorted(run, key=lambda record: str(record[1]))]


def _ours(records: list[Record]) -> list[Any]:
    return _in_order(_normal(int(record.type), record.key, record.value) for record in records)


def _theirs(records: list[Operation]) -> list[Any]:
    return _in_order(_normal(record["type"], record["key"], record["value"]) for record in records)


def _reply(reply: Any) -> Any:
    """Return a reply to JoinGroup or SyncGroup as it was recorded."""
    if isinstance(reply, SyncReply):
        return {"error": reply.error, "assignment": _assignment(reply.assignment)}
    assert isinstance(reply, JoinReply)
    return {
        "error": reply.error,
        "member": reply.member_id,
        "generation": reply.generation,
        "protocol": reply.protocol or "",
        "leader": reply.leader_id,
        "skip": reply.skip_assignment,
        "members": {member.member_id: _text(member.metadata) for member in reply.members},
    }


def _recorded(reply: Operation) -> Operation:
    if "member" not in reply:
        return reply | {"assignment": _assignment(reply["assignment"])}
    return reply | {"protocol": reply["protocol"] or ""}


def _random_part(created: str | None) -> str | None:
    """Return the random part of a member ID, which is all of it in a consumer group."""
    if created is None or len(created) == 22:
        return created
    return uuid_text(uuid.UUID(created[-36:]).bytes)


def _heartbeat(host: Host, operation: Operation) -> list[Record]:
    owned, topics, answer = operation.get("owned"), operation.get("topics"), operation["answer"]
    response, records = host.send(
        operation["member"],
        operation["epoch"],
        instance_id=operation.get("instance"),
        rebalance_timeout_ms=operation.get("timeout", -1),
        subscribed_topics=None if topics is None else tuple(topics),
        subscribed_regex=operation.get("regex"),
        server_assignor=operation.get("assignor"),
        owned=None if owned is None else {topic: frozenset(partitions) for topic, partitions in owned.items()},
        **CLIENT,
    )
    assert response.error_code == answer["error"]
    if response.error_code == 0:
        assert (response.member_id, response.member_epoch) == (answer["member"], answer["epoch"])
        assert assignment_of(response.assignment) == assignment_of(answer["assignment"])
    else:
        assert response.error_message == answer["message"]
    return records


def _classic(host: Host, operation: Operation, tokens: dict[int, int]) -> list[Record]:
    answer, member, instance = operation["answer"], operation["member"], operation.get("instance")
    required = answer.get("replies", {}).get(str(operation.get("token")), {})
    host.next_id = _random_part(answer.get("created") or required.get("member") or None)
    generation = operation.get("generation", 0)
    match operation["op"]:
        case "join":
            protocols = (("range", base64.b64decode(operation["subscription"])),)
            times = operation["session"], operation["timeout"]
            request = JoinRequest(9, *CLIENT.values(), member, instance, *times, "consumer", protocols)
            token, records = host.request(requests.join, request)
        case "sync":
            pairs = tuple((to, base64.b64decode(blob)) for to, blob in operation["assignments"].items())
            syncing = SyncRequest(5, member, instance, generation, "consumer", "range", pairs)
            token, records = host.request(requests.sync, syncing)
        case "beat":
            token, records = host.request(requests.heartbeat, ClassicHeartbeatRequest(member, instance, generation))
        case _:
            token, records = host.request(requests.leave, LeaveRequest((LeavingMember(member, instance),)))
    host.next_id = None
    if "token" in operation and "error" not in answer:
        tokens[token] = operation["token"]
        return records
    reply = host.replies.pop(token)
    error = reply.members[0].error if operation["op"] == "leave" else reply.error
    assert error == answer["error"]
    return records


def _run(host: Host, operation: Operation, tokens: dict[int, int]) -> list[Record]:
    match operation["op"]:
        case "sleep":
            return host.advance(operation["ms"])
        case "hb":
            return _heartbeat(host, operation)
        case "join" | "sync" | "beat" | "leave":
            return _classic(host, operation, tokens)
        case _:
            change_topics(host, operation)
            return []


@pytest.mark.parametrize("walk", walks(FIXTURE), ids=lambda walk: f"{len(walk)}-operations")
def test_walk(walk: list[Operation]) -> None:
    _, *operations = walk
    host, tokens = Host(settings=CoordinatorSettings(initial_rebalance_delay_ms=0)), {}
    for number, operation in enumerate(operations):
        records = _run(host, operation, tokens)
        answer = operation["answer"]
        assert _ours(records) == _theirs(answer.get("records", [])), (number, operation["op"])
        sent = {str(tokens.pop(token)): _reply(host.replies.pop(token)) for token in [*tokens] if token in host.replies}
        assert sent == {token: _recorded(reply) for token, reply in answer.get("replies", {}).items()}, number
