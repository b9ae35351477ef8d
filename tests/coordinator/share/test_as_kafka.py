"""Random walks of share groups whose answers and records were recorded from the GroupMetadataManager of Kafka 4.2.0.

`tests/support/coordinator/java/KafkaGroups.java` recorded them. Each walk starts with the operation `reset`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offsetlake.coordinator.migration.requests import share_heartbeat
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.share import members, offsets
from offsetlake.coordinator.share.group import ShareGroup
from offsetlake.coordinator.share.requests import Initialization, ShareHeartbeatRequest
from offsetlake.coordinator.steps import Record
from offsetlake.kafka import error_codes
from support.coordinator.consumer_groups import GROUP, Host
from support.coordinator.recorded_walks import CLIENT, Operation, assignment_of, change_topics, ours, theirs, walks

FIXTURE = Path(__file__).parents[2] / "fixtures" / "share-groups-4.2.0.jsonl.gz"


def _heartbeat(host: Host, operation: Operation) -> list[Record]:
    answer, topics = operation["answer"], operation.get("topics")
    request = ShareHeartbeatRequest(
        GROUP,
        operation["member"],
        operation["epoch"],
        operation.get("rack"),
        None if topics is None else tuple(topics),
        **CLIENT,
    )
    token, records = host.request(share_heartbeat, request)
    response, initialization = host.replies[token].response, host.replies[token].initialization
    assert response.error_code == answer["error"]
    if response.error_code:
        assert response.error_message == answer["message"]
        return records
    assert (response.member_id, response.member_epoch) == (answer["member"], answer["epoch"])
    assert assignment_of(response.assignment) == assignment_of(answer["assignment"])
    assert _start_offsets(initialization) == _their_start_offsets(answer)
    return records


def _start_offsets(initialization: Initialization | None) -> Any:
    return initialization and (initialization.epoch, initialization.start_offsets)


def _their_start_offsets(answer: Operation) -> Any:
    topics = answer.get("initialization")
    return (
        (
            answer["stateEpoch"],
            {topic: {int(number): offset for number, offset in found.items()} for topic, found in topics.items()},
        )
        if topics
        else None
    )


def _alter(host: Host, operation: Operation) -> list[Record]:
    requested = {
        name: {int(number): offset for number, offset in partitions.items()}
        for name, partitions in operation["offsets"].items()
    }
    reply, records = _reply(host, operation, offsets.alter, requested)
    answer = operation["answer"]
    if reply.error is None:
        errors = {
            name: {
                str(number): error_codes.UNKNOWN_TOPIC_OR_PARTITION if number in reply.unknown[name] else 0
                for number in numbers
            }
            for name, numbers in requested.items()
        }
        assert errors == answer["topics"]
        assert _start_offsets(reply.initialization) == _their_start_offsets(answer)
    return records


def _delete(host: Host, operation: Operation) -> list[Record]:
    reply, records = _reply(host, operation, offsets.delete, operation["topics"])
    if reply.error is None:
        assert {name: error.error_message for name, error in reply.topic_errors} == operation["answer"]["errors"]
        assert assignment_of(reply.deletion) == assignment_of(operation["answer"]["deletion"])
    return records


def _delete_states(host: Host, operation: Operation) -> list[Record]:
    if not host.group.exists:  # it has no other step then
        assert operation["answer"]["error"] == error_codes.GROUP_ID_NOT_FOUND
        return []
    reply, records = _reply(host, operation, lambda step, group, _, token: offsets.delete_all(step, group, token), None)
    if reply.error is None:
        assert assignment_of(reply.deletion) == assignment_of(operation["answer"]["deletion"])
    return records


def _reply(host: Host, operation: Operation, api: Callable[..., None], request: object) -> tuple[Any, list[Record]]:
    token, records = host.request(api, request)
    reply, answer = host.replies[token], operation["answer"]
    assert (0 if reply.error is None else reply.error.error_code) == answer["error"]
    if reply.error is not None:
        assert str(reply.error) == answer["message"]
    return reply, records


def _partitions(operation: Operation) -> dict[str, frozenset[int]]:
    return {topic_id: frozenset(numbers) for topic_id, numbers in operation["partitions"].items()}


REQUESTS = {"share": _heartbeat, "alter": _alter, "delete-offsets": _delete, "delete-states": _delete_states}


def _run(host: Host, operation: Operation) -> list[Record]:
    if operation["op"] in REQUESTS:
        return REQUESTS[operation["op"]](host, operation)
    if operation["op"] == "sleep":
        return host.advance(operation["ms"])
    step = host.step()
    match operation["op"]:
        case "load":
            members.loaded(step, host.group)
        case "initialized":
            offsets.initialized(step, host.group, _partitions(operation))
        case "not-initialized":
            offsets.not_initialized(step, host.group, _partitions(operation))
        case "deleted":
            offsets.deleted(step, host.group, operation["topics"])
        case "forget":
            offsets.topics_deleted(step, host.group, [operation["id"]])
        case _:
            change_topics(host, operation)
    return host.run(step)


@pytest.mark.parametrize("walk", walks(FIXTURE), ids=lambda walk: f"{len(walk)}-operations")
def test_walk(walk: list[Operation]) -> None:
    reset, *operations = walk
    settings = CoordinatorSettings(share_max_size=reset["config"]["group.share.max.size"])
    host = Host(settings=settings, group=ShareGroup(GROUP))
    for number, operation in enumerate(operations):
        records = _run(host, operation)
        assert ours(records) == theirs(operation["answer"]), (number, operation["op"])
