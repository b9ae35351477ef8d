"""Checks that share partitions are in the log partitions that belong to them."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from aiokafka.errors import CorruptRecordException
from aiokafka.record.memory_records import MemoryRecords

from offsetlake.errors import LogMismatch, LogUnavailable, UndecodableRecord
from offsetlake.kafka.placement import partition_for_share_partition
from offsetlake.kafka.uuid import uuid_text
from offsetlake.log.disk.segments import partition_folders, segments_of
from offsetlake.log.positions import SHARE_STATE_PARTITIONS, SHARE_STATE_TOPIC, LogPartition
from offsetlake.share.state.packed import unpacked_partition
from offsetlake.share.state.records import decoded

MAX_CHECKED_KEYS = 100
"""Enough keys of a log partition to detect another number of log partitions, with which most keys are misplaced."""

_MAX_HEAD_BYTES = 1 << 20
"""The part of a log partition whose first keys are checked before all records are read."""


def check_heads(folder: Path) -> None:
    """Check the first keys of each log partition, which takes milliseconds even if the log has millions of records.

    What is corrupt is skipped: `ShareStateLog` refuses it.

    Raises:
        LogMismatch: A share partition is in another log partition than the one that belongs to it.
        LogUnavailable: The log cannot be read.
    """
    for partition, path in share_state_folders(folder).items():
        check_keys(partition, path, _first_keys(path))


def share_state_folders(folder: Path) -> dict[LogPartition, Path]:
    """Return the folders of the log partitions.

    Raises:
        LogMismatch: There are more log partitions than SHARE_STATE_PARTITIONS.
        LogUnavailable: The folder cannot be read.
    """
    paths = partition_folders(folder, SHARE_STATE_TOPIC)
    for partition, path in paths.items():
        if partition.partition >= SHARE_STATE_PARTITIONS:
            raise _mismatch(path, "The log partition")
    return paths


def check_keys(log_partition: LogPartition, path: Path, keys: Iterable[bytes]) -> None:
    """Check up to MAX_CHECKED_KEYS packed keys of a log partition and its folder.

    Raises:
        LogMismatch: A share partition is in another log partition than the one that belongs to it.
    """
    for key in islice(keys, MAX_CHECKED_KEYS):
        if (unpacked := unpacked_partition(key)) is None:
            continue
        group_id, topic_id, partition = unpacked
        name = group_id.decode(errors="replace"), uuid_text(topic_id), partition
        expected = partition_for_share_partition(*name, SHARE_STATE_PARTITIONS)
        if expected != log_partition.partition:
            share_partition, belongs = ":".join(map(str, name)), LogPartition(SHARE_STATE_TOPIC, expected)
            raise _mismatch(path, f"Share partition {share_partition}, which belongs in {belongs},")


def _first_keys(path: Path) -> Iterator[bytes]:
    """Yield the keys at the start of a log partition, except for those of records that cannot be decoded."""
    segment = next((each.path for each in segments_of(path) if each.path.stat().st_size), None)
    if segment is None:
        return
    try:
        with segment.open("rb") as file:
            batches = MemoryRecords(file.read(_MAX_HEAD_BYTES))
    except OSError as error:
        raise LogUnavailable(f"The segment {segment} cannot be read: {error.strerror}.") from error
    with suppress(CorruptRecordException):
        while (batch := batches.next_batch()) is not None and batch.validate_crc():
            for record in () if batch.is_control_batch else batch:
                with suppress(UndecodableRecord):
                    decoded(record.key or b"", record.value)
                    yield (record.key or b"")[2:]


def _mismatch(path: Path, what: str) -> LogMismatch:
    return LogMismatch(
        f"{what} is in {path}, because the broker that wrote the log had a share.coordinator.state.topic.num."
        f"partitions other than {SHARE_STATE_PARTITIONS}. Delete the folders {path.parent / SHARE_STATE_TOPIC}-*, "
        "which removes the state of all share partitions, and set the start offsets of the share groups again, for "
        "example with kafka-share-groups.sh --reset-offsets."
    )
