"""Random walks whose answers and records were recorded from the GroupMetadataManager of Kafka 4.2.0.

`tests/support/coordinator/java/KafkaGroups.java` recorded them. Each walk starts with the operation `reset`.
"""

from pathlib import Path

import pytest

from offsetlake.coordinator.consumer import timers
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.steps import Record, Timer, TimerKind
from offsetlake.kafka import error_codes
from support.coordinator.consumer_groups import GROUP, Host
from support.coordinator.recorded_walks import CLIENT, Operation, assignment_of, change_topics, ours, theirs, walks

FIXTURE = Path(__file__).parents[2] / "fixtures" / "consumer-groups-4.2.0.jsonl.gz"
REGEX_TIMER = Timer(TimerKind.REGEX, GROUP)


def _heartbeat(host: Host, operation: Operation, answer: Operation) -> list[Record]:
    owned = operation.get("owned")
    topics = operation.get("topics")
    response, records = host.send(
        operation["member"],
        operation["epoch"],
        instance_id=operation.get("instance"),
        rack_id=operation.get("rack"),
        rebalance_timeout_ms=operation.get("timeout", -1),
        subscribed_topics=None if topics is None else tuple(topics),
        subscribed_regex=operation.get("regex"),
        server_assignor=operation.get("assignor"),
        owned=None if owned is None else {topic: frozenset(partitions) for topic, partitions in owned.items()},
        **CLIENT,
    )
    assert response.error_code == answer["error"]
    if response.error_code == error_codes.NONE:
        assert (response.member_id, response.member_epoch) == (answer["member"], answer["epoch"])
        assert assignment_of(response.assignment) == assignment_of(answer["assignment"])
    elif response.error_code != error_codes.INVALID_REGULAR_EXPRESSION:  # the texts of RE2 and RE2/J differ
        assert response.error_message == answer["message"]
    return records


def _sleep(host: Host, elapsed_ms: int) -> list[Record]:
    """Advance the clock; only the operation `exec` evaluates regular expressions."""
    evaluation = host.timers.pop(REGEX_TIMER, None)
    records = host.advance(elapsed_ms)
    if evaluation is not None:
        host.timers[REGEX_TIMER] = evaluation
    return records


def _evaluate(host: Host) -> list[Record]:
    if host.timers.pop(REGEX_TIMER, None) is None:
        return []
    step = host.step()
    host.evaluate(step)
    return host.run(step)


def _run(host: Host, operation: Operation) -> list[Record]:
    match operation["op"]:
        case "sleep":
            return _sleep(host, operation["ms"])
        case "exec":
            return _evaluate(host)
        case "hb":
            return _heartbeat(host, operation, operation["answer"])
        case "load":
            step = host.step()
            timers.loaded(step, host.group)
            return host.run(step)
        case _:
            change_topics(host, operation)
            return []


@pytest.mark.parametrize("walk", walks(FIXTURE), ids=lambda walk: f"{len(walk)}-operations")
def test_walk(walk: list[Operation]) -> None:
    reset, *operations = walk
    max_size = reset["config"]["group.consumer.max.size"]
    host = Host(settings=CoordinatorSettings(consumer_max_size=max_size))
    for number, operation in enumerate(operations):
        records = _run(host, operation)
        assert ours(records) == theirs(operation["answer"]), (number, operation["op"])
