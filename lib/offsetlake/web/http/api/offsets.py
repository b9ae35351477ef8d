"""The stored offsets of a group as HTTP answers contain them, read in steps."""

from typing import Any

from offsetlake.kafka.uuid import ZERO_UUID, uuid_text
from offsetlake.serve.steps import Steps
from offsetlake.serve.storage.group_offsets import GroupOffsets
from offsetlake.serve.storage.mapped_snapshot import Stored

_STEP_OFFSETS = 100


def read_offsets(group_offsets: GroupOffsets, topic: str | None) -> Steps[list[dict[str, Any]]]:
    """Return the offsets of a group, or those of one topic, in the order of topics and partitions."""
    partitions = yield from group_offsets.partitions()
    topics = sorted(partitions) if topic is None else [name for name in (topic.encode(),) if name in partitions]
    rows: list[dict[str, Any]] = []
    for name in topics:
        numbers = sorted(partitions[name])
        for begin in range(0, len(numbers), _STEP_OFFSETS):
            part = numbers[begin : begin + _STEP_OFFSETS]
            offsets = zip(part, group_offsets.read(name, part), strict=True)
            rows += (_row(name.decode(), number, stored) for number, stored in offsets if stored is not None)
            yield 0
    return rows


def _row(topic: str, partition: int, stored: Stored) -> dict[str, Any]:
    offset, epoch, metadata, topic_id = stored
    return {
        "topic": topic,
        "partition": partition,
        "committed_offset": offset,
        "leader_epoch": None if epoch < 0 else epoch,
        "metadata": metadata.decode(),
        "topic_id": None if topic_id == ZERO_UUID else uuid_text(topic_id),
    }
