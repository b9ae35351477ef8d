"""Generates large realistic offset logs for benchmarks: whole batches are rows of a matrix of bytes.

Every commit of a partition's batches has the same width, so a batch is a template into which numpy writes columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from support.oracle.encoders import group_log_partition, offset_key, offset_value
from support.oracle.log_reader import OFFSETS_TOPIC
from support.oracle.log_writer import Batch, Record, batch_bytes

START_TIME = 1_700_000_000_000  # ms, of the first commit
SPAN = 30 * 86_400_000  # ms, from the first commit to the last
_ROWS_AT_ONCE = 2000
_HEADER = 61  # bytes of a batch before its first record


@dataclass(frozen=True)
class BulkLog:
    """What was written; `keys` counts the distinct (group_id, topic, partition)."""

    commits: int
    keys: int
    segments: int
    size: int  # bytes


@dataclass(frozen=True)
class _Commits:
    """Columns of the commits in log order; groups and topics as rows of equally long ASCII names.

    Narrow types, as a log of 100 M commits is made in memory.
    """

    group: NDArray[np.int32]
    topic: NDArray[np.int16]
    partition: NDArray[np.int32]
    committed_offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]

    def take(self, rows: NDArray[np.int64] | slice) -> "_Commits":
        return _Commits(
            self.group[rows], self.topic[rows], self.partition[rows], self.committed_offset[rows], self.timestamp[rows]
        )


def write_bulk_log(
    folder: Path,
    commits: int,
    *,
    groups: int,
    topics: int,
    partitions: int,
    log_partitions: int = 50,
    records_per_batch: int = 175,
    segment_bytes: int = 100 * 1024 * 1024,
    value_version: Literal[3, 4] = 4,
    seed: int = 0,
    in_turn: bool = False,
) -> BulkLog:
    """Write `commits` non-transactional commits as uncompressed magic-2 batches into `<folder>/__consumer_offsets-N/`.

    A group commits all `partitions` of one of the `topics` at once, groups and topics uniformly at random, or one
    after the other; committed offsets and commit timestamps grow along the log. Groups `group-…` stand in the log
    partition Kafka gives them.
    """
    group_ids = _names("group", groups)
    topic_names = _names("topic", topics)
    all_commits = _draw_commits(np.random.default_rng(seed), commits, groups, topics, partitions, in_turn=in_turn)
    placement = np.array([group_log_partition(group_id, log_partitions) for group_id in group_ids], np.int16)
    of_commit = placement[all_commits.group]
    order = np.argsort(of_commit, kind="stable")
    bounds = np.searchsorted(of_commit[order], np.arange(log_partitions + 1))
    segments = size = 0
    for log_partition, (start, end) in enumerate(pairwise(bounds)):
        if start < end:
            layout = _Layout(group_ids, topic_names, value_version)
            blocks = _blocks(layout, all_commits.take(order[start:end]), records_per_batch)
            sizes = _write_segments(folder / f"{OFFSETS_TOPIC}-{log_partition}", blocks, segment_bytes)
            segments, size = segments + len(sizes), size + sum(sizes)
    key_codes = (all_commits.group.astype(np.int64) * topics + all_commits.topic) * partitions + all_commits.partition
    return BulkLog(commits, int(np.unique(key_codes).size), segments, size)


def _names(prefix: str, count: int) -> list[str]:
    width = len(str(max(count - 1, 0)))
    return [f"{prefix}-{number:0{width}d}" for number in range(count)]


def _draw_commits(
    rng: np.random.Generator, commits: int, groups: int, topics: int, partitions: int, *, in_turn: bool
) -> _Commits:
    requests = -(-commits // partitions)
    position = np.arange(commits)
    request = position // partitions
    turn = np.arange(requests)
    return _Commits(
        group=(turn % groups if in_turn else rng.integers(groups, size=requests)).astype(np.int32)[request],
        topic=(turn // groups % topics if in_turn else rng.integers(topics, size=requests)).astype(np.int16)[request],
        partition=(position % partitions).astype(np.int32),
        committed_offset=position * 10 + rng.integers(10, size=commits),
        timestamp=START_TIME + request * SPAN // requests,
    )


class _Layout:
    """The positions of the fields of commits in a batch of `count` records."""

    def __init__(self, group_ids: list[str], topics: list[str], value_version: int) -> None:
        self.group_bytes = _matrix(group_ids)
        self.topic_bytes = _matrix(topics)
        self.key = offset_key(group_ids[0], topics[0], 0)
        self.value = offset_value(value_version, 0, commit_timestamp=0)
        self.group_at = 4  # behind the record type and the length of the group id
        self.topic_at = self.group_at + self.group_bytes.shape[1] + 2
        self.partition_at = len(self.key) - 4
        self.timestamp_at = 14 + 1 if value_version == 4 else 14 + 2  # behind the empty metadata

    def template(self, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return a batch of `count` records with the same key and value, and the positions of the keys."""
        records = tuple(Record(offset, 0, self.key, self.value) for offset in range(count))
        data = batch_bytes(Batch(records=records))
        keys_at = []
        position = _HEADER
        while (position := data.find(self.key, position)) >= 0:
            keys_at.append(position)
            position += len(self.key) + len(self.value)
        return np.frombuffer(data, np.uint8), np.array(keys_at)

    def batches(self, commits: _Commits, count: int, base_offset: int) -> NDArray[np.uint8]:
        """Return whole batches of `count` records as rows; the number of commits is a multiple of it."""
        template, keys_at = self.template(count)
        rows = len(commits.group) // count
        data = np.tile(template, (rows, 1))

        def put(positions: NDArray[np.int64], values: NDArray[np.uint8]) -> None:
            columns = (positions[:, None] + np.arange(values.shape[1])).ravel()
            data[:, columns] = values.reshape(rows, -1)

        # Key and value stand in a row, one varint byte for the value's length between them.
        values_at = keys_at + len(self.key) + 1
        put(keys_at + self.group_at, self.group_bytes[commits.group])
        put(keys_at + self.topic_at, self.topic_bytes[commits.topic])
        put(keys_at + self.partition_at, _big_endian(commits.partition, ">i4"))
        put(values_at + 2, _big_endian(commits.committed_offset, ">i8"))
        put(values_at + self.timestamp_at, _big_endian(commits.timestamp, ">i8"))
        header = np.zeros(1, np.int64)
        put(header, _big_endian(base_offset + np.arange(rows) * count, ">i8"))
        for timestamp_at in (27, 35):  # base and maximum: a coordinator gives all records of a batch one timestamp
            put(header + timestamp_at, _big_endian(commits.timestamp[count - 1 :: count], ">i8"))
        crcs = np.array([google_crc32c.value(row) for row in map(bytes, data[:, 21:])], np.int64)
        put(header + 17, _big_endian(crcs, ">u4"))
        return data


def _matrix(names: list[str]) -> NDArray[np.uint8]:
    return np.frombuffer("".join(names).encode("ascii"), np.uint8).reshape(len(names), -1)


def _big_endian(numbers: NDArray[np.int64], layout: str) -> NDArray[np.uint8]:
    return numbers.astype(layout).view(np.uint8).reshape(len(numbers), -1)


def _blocks(layout: _Layout, commits: _Commits, records_per_batch: int) -> Iterator[tuple[int, bytes]]:
    """Yield the base offset and the bytes of each batch of a log partition."""
    total = len(commits.group)
    whole = total - total % records_per_batch
    step = _ROWS_AT_ONCE * records_per_batch
    for start in range(0, whole, step):
        end = min(start + step, whole)
        data = layout.batches(commits.take(slice(start, end)), records_per_batch, start)
        for number, row in enumerate(data):
            yield start + number * records_per_batch, row.tobytes()
    if whole < total:
        data = layout.batches(commits.take(slice(whole, total)), total - whole, whole)
        yield whole, data[0].tobytes()


def _write_segments(directory: Path, blocks: Iterator[tuple[int, bytes]], segment_bytes: int) -> list[int]:
    """Write the batches into segments of up to `segment_bytes`; returns the segments' sizes."""
    directory.mkdir(parents=True, exist_ok=True)
    sizes: list[int] = []
    segment = None
    for base_offset, data in blocks:
        if segment is None or sizes[-1] + len(data) > segment_bytes:
            if segment is not None:
                segment.close()
            segment = (directory / f"{base_offset:020d}.log").open("wb")
            sizes.append(0)
        segment.write(data)
        sizes[-1] += len(data)
    if segment is not None:
        segment.close()
    return sizes
