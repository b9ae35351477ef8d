"""The partitions in requests of share consumers, with their acknowledgements."""

from collections.abc import Sequence
from typing import Any

from offsetlake.coordinator.share_partition.requests import AcknowledgementBatch
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.share.pace import Pace
from offsetlake.share.sessions import IdPartition

Batches = dict[IdPartition, Sequence[AcknowledgementBatch]]
"""The acknowledgements by partition; a partition that is only fetched has none."""


async def acknowledgements(request: Any) -> Batches:
    """Return the partitions of a request with their acknowledgements, the last ones if a partition is named twice."""
    found: Batches = {}
    pace = Pace()
    for topic in request.topics:
        for part in topic.partitions:
            batches: list[AcknowledgementBatch] = []
            for batch in part.acknowledgement_batches:
                batches.append(AcknowledgementBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types))
                await pace.spend()
            found[IdPartition(_id(topic), part.partition_index)] = batches
            await pace.spend()
    return found


async def forgotten_partitions(request: Any) -> list[IdPartition]:
    """Return the partitions that ShareFetch removes from its session."""
    found: list[IdPartition] = []
    pace = Pace()
    for topic in request.forgotten_topics_data:
        for number in topic.partitions:
            found.append(IdPartition(_id(topic), number))
            await pace.spend()
    return found


def _id(topic: Any) -> bytes:
    return topic.topic_id.bytes if topic.topic_id else ZERO_UUID
