"""Requests to the controller that move the replicas of partitions."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from offsetlake.errors import LogUnavailable, Refused
from offsetlake.kafka.error_codes import NONE
from offsetlake.node.controllers import Controllers
from offsetlake.util.amounts import counted

ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 45, 46
_TIMEOUT = timedelta(seconds=30)

Where = tuple[str, int]
"""A topic and a partition."""


async def reassign(controllers: Controllers, replicas: Mapping[Where, Sequence[int]]) -> None:
    """Begin to move partitions to replicas.

    Raises:
        Refused: The controller refused a partition.
        LogUnavailable: The controller does not answer.
    """
    topics: dict[str, list[dict[str, object]]] = {}
    for (topic, partition), nodes in replicas.items():
        topics.setdefault(topic, []).append({"partition_index": partition, "replicas": nodes})
    values = {"timeout": _TIMEOUT, "topics": [{"name": name, "partitions": each} for name, each in topics.items()]}
    answer = await controllers.send(ALTER_REASSIGNMENTS, 0, values)
    errors = [(answer.error_code, answer.error_message)] if answer.error_code else []
    errors += [
        (partition.error_code, f"{topic.name}-{partition.partition_index}: {partition.error_message}")
        for topic in answer.responses
        for partition in topic.partitions
        if partition.error_code != NONE
    ]
    if errors:
        code, message = errors[0]
        raise Refused(
            f"The controller refused to move {counted(len(errors), 'partition')} (error code {int(code)}): {message}."
        )


async def targets(controllers: Controllers, partitions: Iterable[Where]) -> dict[Where, list[int]]:
    """Return the replicas that those of the partitions are to have that are being moved.

    Raises:
        LogUnavailable: The controller does not answer.
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    values = {
        "timeout": _TIMEOUT,
        "topics": [{"name": name, "partition_indexes": numbers} for name, numbers in topics.items()],
    }
    answer = await controllers.send(LIST_REASSIGNMENTS, 0, values)
    if answer.error_code != NONE:
        raise LogUnavailable(f"ListPartitionReassignments failed with the error code {int(answer.error_code)}.")
    return {
        (topic.name, partition.partition_index): [
            node for node in partition.replicas if node not in partition.removing_replicas
        ]
        for topic in answer.topics
        for partition in topic.partitions
    }
