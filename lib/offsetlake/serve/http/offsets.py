"""The stored offsets of a group as HTTP tells them, read in turns."""

from typing import Any

from offsetlake.kafka.uuid import ZERO_UUID, uuid_text
from offsetlake.serve.steps import Steps
from offsetlake.serve.storage.group_offsets import Moment
from offsetlake.serve.storage.mapped_snapshot import Stored

_AT_ONCE = 100  # offsets that are read in one step


def read_offsets(moment: Moment, topic: str | None) -> Steps[list[dict[str, Any]]]:
    """Return the offsets of a group, or those of one topic, in the order of topics and partitions."""
    partitions = yield from moment.partitions()
    names = sorted(partitions) if topic is None else [name for name in (topic.encode(),) if name in partitions]
    found: list[dict[str, Any]] = []
    for name in names:
        numbers = sorted(partitions[name])
        for begin in range(0, len(numbers), _AT_ONCE):
            part = numbers[begin : begin + _AT_ONCE]
            stored = zip(part, moment.read(name, part), strict=True)
            found += (_offset(name.decode(), number, of) for number, of in stored if of is not None)
            yield 0
    return found


def _offset(topic: str, partition: int, stored: Stored) -> dict[str, Any]:
    offset, epoch, metadata, topic_id = stored
    return {
        "topic": topic,
        "partition": partition,
        "committed_offset": offset,
        "leader_epoch": None if epoch < 0 else epoch,
        "metadata": metadata.decode(),
        "topic_id": None if topic_id == ZERO_UUID else uuid_text(topic_id),
    }
