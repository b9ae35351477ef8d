"""Random walks whose answers and records `tests/support/coordinator/java/KafkaGroups.java` recorded from Kafka."""

import gzip
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from offsetlake.coordinator.epoch_groups.group import EpochGroup
from offsetlake.coordinator.steps import Record
from support.coordinator.consumer_groups import Host

CLIENT = {"client_id": "client", "client_host": "localhost/127.0.0.1"}

_TOPICS = {"topicPartitions", "assignedPartitions", "partitionsPendingRevocation"}
_TOPICS |= {"initializingTopics", "initializedTopics", "deletingTopics"}

Operation = dict[str, Any]


def walks(fixture: Path) -> list[list[Operation]]:
    """Return the walks of a fixture."""
    operations = [json.loads(line) for line in gzip.decompress(fixture.read_bytes()).splitlines()]
    resets = 0

    def walk(operation: Operation) -> int:
        nonlocal resets
        resets += operation["op"] == "reset"
        return resets

    return [list(walked) for _, walked in groupby(operations, key=walk)]


def _normal(records: Iterator[tuple[int, Any, Any]]) -> list[Any]:
    """Return records with sorted partitions; the order of regular expressions of one evaluation is undefined."""
    normal: list[Any] = []
    for record_type, key, value in records:
        fields = dict(value or {})
        for name in _TOPICS & fields.keys():
            fields[name] = sorted(
                (topic["topicId"], topic.get("topicName"), sorted(topic.get("partitions", ())))
                for topic in fields[name]
            )
        if record_type == 3 and value is not None:
            fields.setdefault("metadataHash", 0)
        names = {name: text for name, text in key.items() if name != "groupId"}
        normal.append((record_type, names, None if value is None else fields))
    evaluated = iter(sorted((record for record in normal if record[0] == 16 and record[2]), key=str))
    return [next(evaluated) if record[0] == 16 and record[2] else record for record in normal]


def ours(records: list[Record]) -> list[Any]:
    """Return the records of the core, in a form that can be compared."""
    return _normal((int(record.type), record.key, record.value) for record in records)


def theirs(answer: Operation) -> list[Any]:
    """Return the records of Kafka, in a form that can be compared."""
    return _normal((record["type"], record["key"], record["value"]) for record in answer.get("records", []))


def assignment_of(assignment: Any) -> Any:
    """Return an assignment with sorted partitions."""
    return assignment and {topic: sorted(partitions) for topic, partitions in assignment.items()}


def change_topics(host: Host, operation: Operation) -> None:
    """Create, extend or delete a topic, and inform the group if it is subscribed to it; a classic group is not."""
    names = {topic: name for name, topic in host.topics.ids.items()}
    name = operation.get("name") or names[operation["id"]]
    match operation["op"]:
        case "create":
            host.topics.create(name, operation["partitions"])
            host.topics.ids[name] = operation["id"]
        case "extend":
            host.topics.extend(name, operation["partitions"])
        case _:
            host.topics.delete(name)
    if isinstance(host.group, EpochGroup) and name in host.group.subscriptions.topics():
        host.change_topics()
