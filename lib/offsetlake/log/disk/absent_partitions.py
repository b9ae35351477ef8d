"""Partitions that a topic has, but a folder does not contain: in another log directory, on another broker, not copied.

What is known of the number of partitions of a topic: the numbers of the folders, the checkpoint files of a broker, and
the groups in the log, each of which is in the partition `abs(hash) % count` (Kafka's `GroupMetadataManager`).
"""

import math
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from offsetlake.errors import LogMismatch
from offsetlake.kafka.batches.reader import read_batches
from offsetlake.kafka.placement import partition_for_group
from offsetlake.log.disk.lacking import read_lacking
from offsetlake.log.disk.segments import LOCK_FILE, entries, partition_of, segments_of
from offsetlake.log.positions import LOG_TOPICS, LogPartition

DEFAULT_PARTITIONS = 50
"""The default of a broker's `offsets.topic.num.partitions`."""

HEAD_BYTES = 64 << 10
"""The part of a partition whose groups are read."""

MAX_PARTITIONS = 10_000
MAX_ODDS = 1000
"""Against all groups being where a larger number of partitions would place them, to believe a smaller one."""

_CHECKPOINTS = ("replication-offset-checkpoint", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint")
_NOT_READ = re.compile(r"(.+-(?:0|[1-9][0-9]*))\.[0-9a-f]{32}-(?:delete|future|stray)")
_TYPE_AND_LENGTH = struct.Struct(">hh")
_MAX_INT32 = 2**31 - 1


def absent_partitions(folder: Path, present: Collection[LogPartition]) -> list[LogPartition]:
    """Return the partitions of log topics that a data folder shows to exist, but does not contain.

    An entry of the folder has their name, such as a link to a disk that is not mounted, or a replica that a broker
    moves or deletes; or they are in a checkpoint file; or their numbers are below the highest one. If offsetlake writes
    the log, numbers count only if they were absent before its first write.

    Raises:
        LogUnavailable: The folder cannot be read.
    """
    names = [match[1] if (match := _NOT_READ.fullmatch(path.name)) else path.name for path in entries(folder)]
    for checkpoint in _CHECKPOINTS:
        names += (f"{topic}-{partition}" for topic, partition, _ in checkpoint_lines(folder / checkpoint))
    named = {partition for name in names if (partition := partition_of(Path(name)))}.union(present)
    if is_written(folder):
        named.update(read_lacking(folder).absent)
        return sorted(partition for partition in named.difference(present) if partition.topic in LOG_TOPICS)
    return absent_below({topic: _count(named, topic) for topic in LOG_TOPICS}, present)


def is_written(folder: Path) -> bool:
    """Return whether offsetlake writes the log in a folder, or has written to it."""
    return (folder / LOCK_FILE).exists()


def absent_below(counts: Mapping[str, int], present: Collection[LogPartition]) -> list[LogPartition]:
    """Return the partitions of topics, of which `counts` are the numbers, that are not present."""
    every = (LogPartition(topic, number) for topic, count in counts.items() for number in range(count))
    return [partition for partition in every if partition not in present]


def _count(partitions: Iterable[LogPartition], topic: str) -> int:
    return max((number + 1 for name, number in partitions if name == topic), default=0)


def checkpoint_lines(file: Path) -> Iterator[tuple[str, int, int]]:
    """Yield topic, partition and log offset of the lines of a checkpoint file; nothing if there is no such file."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    for line in lines[2:]:  # after the version and the number of lines
        topic, *numbers = line.rsplit(" ", 2)
        if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
            yield topic, int(numbers[0]), int(numbers[1])


def check_topic_ids(folders: Mapping[LogPartition, Path]) -> None:
    """Raise LogMismatch if the files `partition.metadata` show that partitions are of different topics of one name."""
    first: dict[str, tuple[str, Path]] = {}
    for partition, path in folders.items():
        topic_id = _topic_id(path / "partition.metadata")
        other_id, other = first.setdefault(partition.topic, (topic_id, path)) if topic_id else ("", path)
        if topic_id and topic_id != other_id:
            raise LogMismatch(
                f"{other} and {path} are partitions of different topics of the same name: their partition.metadata has "
                f"the topic ids {other_id} and {topic_id}. Remove the folders of the topic that was deleted, or of the "
                "other cluster."
            )


def _topic_id(file: Path) -> str:
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("topic_id:")), "")


def partition_count(groups: Collection[tuple[str, int]], numbers: Collection[int], named: int) -> int:
    """Return the number of partitions of `__consumer_offsets`, of which at least `named` are known.

    Args:
        groups: Groups at the beginning of partitions, with the numbers of these.
        numbers: The numbers of the partitions that are present.
        named: The result, unless the groups show that it is greater.
    """
    divisor = math.gcd(*(partition_for_group(group, _MAX_INT32 + 1) - number for group, number in groups))
    if not divisor:  # the number of partitions divides it
        return named
    candidates = [named] if len(numbers) == named else []
    candidates += [count for count in (DEFAULT_PARTITIONS, divisor) if named <= count <= MAX_PARTITIONS]
    for count in candidates:
        if divisor % count == 0 and (divisor > MAX_PARTITIONS or _odds(divisor // count, len(groups)) <= MAX_ODDS):
            return count
    return named


def _odds(factor: int, groups: int) -> float:
    """Return the odds against the partitions of all groups being those of a number that is larger by a factor."""
    return float(factor) ** min(groups, 64)


def head(partition: Path) -> bytes:
    """Return the bytes at the beginning of a partition, at most HEAD_BYTES."""
    segment = next((each.path for each in segments_of(partition) if each.path.stat().st_size), None)
    if segment is None:
        return b""
    with segment.open("rb") as file:
        return file.read(HEAD_BYTES)


def groups_in(data: bytes) -> set[str]:
    """Return the groups of the records in record batches; what is damaged or cut is left to the ingest."""
    records, _ = read_batches(data)
    keys = {records.key(number) for number in np.flatnonzero(~records.control).tolist()}
    return {group for key in keys if (group := _group_of(key)) is not None}


def _group_of(key: bytes | None) -> str | None:
    """Return the group in the key of a record, which all record types have first; None if the key is malformed."""
    if key is None or len(key) < _TYPE_AND_LENGTH.size:
        return None
    _, size = _TYPE_AND_LENGTH.unpack_from(key)
    name = key[_TYPE_AND_LENGTH.size :][: max(size, 0)]
    return None if len(name) != size else name.decode(errors="replace")
