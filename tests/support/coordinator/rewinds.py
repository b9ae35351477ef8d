"""Rewinds that tests request, and the offsets that a log of records contains."""

from collections.abc import Iterable

from offsetlake.coordinator.rewind import Rewind
from offsetlake.coordinator.steps import Record
from offsetlake.kafka.records.coordinator_records import OffsetsRecordType


def offset(topic: str, partition: int, committed: int) -> Record:
    """Return the record of an offset."""
    key = {"group": "g", "topic": topic, "partition": partition}
    value = {"offset": committed, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 1}
    return Record(OffsetsRecordType.OFFSET_COMMIT, key, value)


def rewind(token: int, *offsets: Record) -> Rewind:
    """Return a request to set offsets."""
    return Rewind(token, offsets)


def offsets_in(records: Iterable[Record]) -> dict[tuple[str, int], int]:
    """Return the last offset of each partition in records."""
    return {
        (record.key["topic"], record.key["partition"]): record.value["offset"]
        for record in records
        if record.type == OffsetsRecordType.OFFSET_COMMIT and record.value is not None
    }
