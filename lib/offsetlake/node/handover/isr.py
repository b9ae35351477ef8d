"""AlterPartition: this process as the leader of partitions changes their in-sync replicas.

The controller accepts the change of a partition only with its current partition epoch, which is in no response of a
broker. It answers NOT_CONTROLLER (41) for a larger one and INVALID_UPDATE_VERSION (95) for a smaller one
(`ReplicationControlManager.validateAlterPartitionData`), so the epoch is found by bisection.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.error_codes import (
    INVALID_UPDATE_VERSION,
    NEW_LEADER_ELECTED,
    NONE,
    NOT_CONTROLLER,
    UNKNOWN_TOPIC_ID,
)
from offsetlake.node.controllers import Controllers

ALTER_PARTITION, _VERSION = 56, 3
MAX_EPOCH = 2**31 - 1
MAX_PROBES = 1_000
"""Maximum number of topic ids in a request."""

_ANY_EPOCH = -1  # the controller does not compare it
_NO_PARTITION = 2**31 - 1


class IsrChange(NamedTuple):
    """The in-sync replicas that a partition is to have."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    in_sync: tuple[int, ...]


async def alter_isr(
    controllers: Controllers, node: int, broker_epoch: int, changes: Sequence[IsrChange]
) -> dict[IsrChange, int]:
    """Change the in-sync replicas of partitions that this node leads; return the error code of each.

    Raises:
        LogUnavailable: The controller does not answer, or does not accept this broker.
    """
    bounds = {change: (change.leader_epoch, MAX_EPOCH) for change in changes}  # a partition epoch is never smaller
    steps = dict.fromkeys(changes, 0)
    results: dict[IsrChange, int] = {}
    while len(results) < len(bounds):
        guesses = {change: _guess(*bounds[change], steps[change]) for change in bounds if change not in results}
        for change, code in (await _send(controllers, node, broker_epoch, guesses)).items():
            low, high = bounds[change]
            steps[change] += 1
            if code == INVALID_UPDATE_VERSION and guesses[change] < high:
                bounds[change] = guesses[change] + 1, high
            elif code == NOT_CONTROLLER and guesses[change] > low:
                bounds[change] = low, guesses[change] - 1
            else:
                results[change] = NONE if code == NEW_LEADER_ELECTED else code
    return results


async def deleted_topics(
    controllers: Controllers, node: int, broker_epoch: int, topic_ids: Iterable[bytes]
) -> set[bytes]:
    """Return those of some topic ids that the active controller does not know, whatever brokers and ACLs say of them.

    An AlterPartition of a partition that does not exist changes nothing, and fails with UNKNOWN_TOPIC_ID only if the
    topic does not exist.

    Raises:
        LogUnavailable: The controller does not answer, or does not accept this broker.
    """
    probes = [IsrChange(topic_id, _NO_PARTITION, 0, ()) for topic_id in topic_ids]
    deleted: set[bytes] = set()
    for begin in range(0, len(probes), MAX_PROBES):
        codes = await _send(controllers, node, broker_epoch, dict.fromkeys(probes[begin : begin + MAX_PROBES], 0))
        deleted |= {probe.topic_id for probe, code in codes.items() if code == UNKNOWN_TOPIC_ID}
    return deleted


def _guess(low: int, high: int, step: int) -> int:
    """Return the next epoch to try: close to the lower bound at first, then in the middle."""
    return low + min((high - low) // 2, (1 << step) - 1)


async def _send(
    controllers: Controllers, node: int, broker_epoch: int, guesses: Mapping[IsrChange, int]
) -> dict[IsrChange, int]:
    topics: dict[bytes, list[dict[str, Any]]] = {}
    for change, epoch in guesses.items():
        topics.setdefault(change.topic_id, []).append(
            {
                "partition_index": change.partition,
                "leader_epoch": change.leader_epoch,
                "new_isr_with_epochs": [{"broker_id": broker, "broker_epoch": _ANY_EPOCH} for broker in change.in_sync],
                "leader_recovery_state": 0,
                "partition_epoch": epoch,
            }
        )
    values = {
        "broker_id": node,
        "broker_epoch": broker_epoch,
        "topics": [
            {"topic_id": uuid.UUID(bytes=topic_id), "partitions": partitions} for topic_id, partitions in topics.items()
        ],
    }
    answer = await controllers.send(ALTER_PARTITION, _VERSION, values)
    if answer.error_code != NONE:
        raise LogUnavailable(f"AlterPartition failed with the error code {int(answer.error_code)}.")
    codes = {
        (topic.topic_id.bytes, partition.partition_index): int(partition.error_code)
        for topic in answer.topics
        for partition in topic.partitions
    }
    return {change: codes[change.topic_id, change.partition] for change in guesses}
