"""Generates batches of random logs with any source of random numbers; simple options come first."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, Literal, NamedTuple, TypeVar
from uuid import UUID

from support.oracle.encoders import (
    Member,
    group_log_partition,
    group_metadata_key,
    group_metadata_value,
    offset_key,
    offset_value,
    string,
)
from support.oracle.log_writer import CODECS_OF_MAGIC, Codec

START_TIME = 1_700_000_000_000  # ms

T = TypeVar("T")
Form = tuple[int, int | None] | Literal["other"]
Headers = tuple[tuple[bytes, bytes | None], ...]
Below = Callable[[int], int]  # a number from 0 to the argument, exclusive

# One draw each, so that little is left to shrink; what stands several times comes more often.
_TICKS = (1, 0, 5, 1000, 60_000, -3, -2000)
_KINDS = ("plain",) * 6 + ("transactional",) * 4 + ("marker",) * 3 + ("empty",)
_MARKERS: tuple[Literal["COMMIT", "ABORT"], ...] = ("COMMIT", "COMMIT", "ABORT")
_RARELY = (False,) * 5 + (True,)
_FRAMES = {  # codec, lost_after, is_append_time, has_delete_horizon
    2: tuple(product(CODECS_OF_MAGIC[2], (0, 0, 0, 0, 1, 3), _RARELY, _RARELY)),
    1: tuple(product(CODECS_OF_MAGIC[1], (0,), _RARELY, (False,))),
    0: tuple(product(CODECS_OF_MAGIC[0], (0,), (False,), (False,))),
}
_SPACINGS = tuple(product((0,) * 5 + (1, 200), (0, 0, 0, 1, 3, -1, 100)))  # lost, delay
# Record type and value version, None for a tombstone; 0.8.2 wrote version 0 under its own record type.
_FORMS: tuple[Form, ...] = (
    *((1, version) for version in (4, 3, 2, 1, 0, 4, 3, 4, 1, 4)),
    *((1, None),) * 3,
    *((0, 0), (0, 0), (0, None)),
    "other",
)
_VALUES = tuple(
    product(
        ("", "m", "ключ", "😀\n\x00", "x" * 5000),
        (0, 1, 42, 127, 2**31, 2**63 - 1, -1),  # committed_offset
        (-1, 0, 5, -2),  # leader_epoch
        (None, UUID("01020304-0506-0708-090a-0b0c0d0e0f10"), UUID(int=2**128 - 1)),
        (-1, START_TIME + 600_000),  # expire_timestamp
        (0, 1, 60_000, 3_600_000, 8 * 86_400_000, -5),  # age of the commit, ms
    )
)
_MEMBER = Member("m1", None, "client", "/127.0.0.1", 60_000, 45_000, b"\x00\x00\x00\x00\x00\x01\x00\x01t", b"")


@dataclass(frozen=True)
class World:
    """The groups, topics and producers of a log."""

    groups: tuple[str, ...]
    topics: tuple[str, ...]
    partitions: int
    log_partitions: int
    producers: tuple[int, ...] = (1000, 1001, 1002)
    commit_ids: tuple[int, ...] = ()  # of commits in parts: with none, no commit is in parts

    @cached_property
    def placement(self) -> dict[int, tuple[str, ...]]:
        """The groups of each log partition that has any."""
        placement: dict[int, tuple[str, ...]] = {}
        for group_id in self.groups:
            log_partition = group_log_partition(group_id, self.log_partitions)
            placement[log_partition] = (*placement.get(log_partition, ()), group_id)
        return placement


class PlannedRecord(NamedTuple):
    """A record to come; `lost` offsets before it were compacted away, `delay` ms lie behind the batch's instant."""

    key: bytes
    value: bytes | None
    lost: int = 0
    delay: int = 0
    headers: Headers = ()


@dataclass(frozen=True)
class BatchPlan:
    """A batch to come: `tick` ms after the one before, `lost_after` offsets gone behind its last record."""

    log_partition: int
    records: tuple[PlannedRecord, ...] = ()
    marker: Literal["COMMIT", "ABORT"] | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    is_transactional: bool = False
    magic: int = 2
    codec: Codec = "none"
    tick: int = 1
    lost_after: int = 0
    is_append_time: bool = False
    has_delete_horizon: bool = False
    opens_segment: bool = False


class Sizes(NamedTuple):
    """How many records a batch has at most, and how many batches a segment has on the average."""

    max_records: int
    batches: int


def choose_batch(below: Below, world: World, sizes: Sizes) -> BatchPlan:
    """A batch about the groups of one of the world's log partitions."""
    pick = _Pick(below)
    log_partition = pick(tuple(world.placement))
    tick, opens_segment = pick(_TICKS), below(sizes.batches) == sizes.batches - 1
    kind = pick(_KINDS if not world.commit_ids else _KINDS + ("parts",) * 14)
    if kind == "empty":  # nothing of it survived compaction
        return BatchPlan(log_partition, tick=tick, opens_segment=opens_segment, lost_after=pick((1, 7)))
    plan = BatchPlan(log_partition, tick=tick, opens_segment=opens_segment)
    if kind == "marker":
        marker, epoch, producer_id = pick(tuple(product(_MARKERS, (0, 1, 2), world.producers)))
        return replace(plan, marker=marker, producer_id=producer_id, producer_epoch=epoch)
    magic = 2
    if kind == "transactional":
        # Kafka tells a transaction by the producer id; the bit alone, or missing beside an id, changes nothing.
        bits, epochs, producers = (True,) * 9 + (False,), (0, 1), world.producers * 4 + (-1,)
        bit, epoch, producer_id = pick(tuple(product(bits, epochs, producers)))
        plan = replace(plan, producer_id=producer_id, producer_epoch=epoch, is_transactional=bit)
    elif kind == "plain":
        magic = pick((2,) * 8 + (1, 0))
    codec, lost_after, is_append_time, has_delete_horizon = pick(_FRAMES[magic])
    keys = tuple(product(world.placement[log_partition], world.topics, range(world.partitions)))
    forms = _FORMS if kind == "plain" else _FORMS[:-1]  # transactions hold offsets only
    records = [_choose_record(pick, forms, keys)]
    while len(records) < sizes.max_records and below(sizes.max_records):
        records.append(_choose_record(pick, forms, keys))
    if kind == "parts" or (world.commit_ids and kind == "transactional" and pick(_RARELY)):
        headers = _part_headers(pick(world.commit_ids), pick((3, 3, 3, 3, 2, 1)))  # often the same, to go on with
        records = [record._replace(lost=pick((0,) * 30 + (record.lost,)), headers=pick(headers)) for record in records]
        lost_after = pick((0,) * 7 + (lost_after,))
    return replace(
        plan,
        records=tuple(records),
        magic=magic,
        codec=codec,
        lost_after=lost_after,
        is_append_time=is_append_time,
        has_delete_horizon=has_delete_horizon,
    )


def _part_headers(commit_id: int, size: int) -> tuple[Headers, ...]:
    """Return headers of commits in parts, some of which are missing or malformed."""
    of_id = (b"commit.id", struct.pack(">q", commit_id))
    of_size = (b"commit.size", struct.pack(">i", size))
    other = (b"commit", b"1")
    return (
        *((of_id, of_size),) * 20,
        *((other, of_size, (b"", None), of_id),) * 4,
        (),
        (other,),
        (of_id,),
        (of_size, (b"commit.id", None)),
        (of_id, (b"commit.size", struct.pack(">i", -size))),
        (of_id, of_size, of_id),
    )


class _Pick:
    """Choose one of several options."""

    def __init__(self, below: Below) -> None:
        self.below = below

    def __call__(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]


def _choose_record(pick: _Pick, forms: Sequence[Form], keys: Sequence[tuple[str, str, int]]) -> PlannedRecord:
    form, key, (lost, delay) = pick(forms), pick(keys), pick(_SPACINGS)
    if form == "other":
        return PlannedRecord(*pick(_other_records(key[0])), lost, delay)
    kind, version = form
    key_bytes = offset_key(*key, legacy=kind == 0)
    if version is None:
        return PlannedRecord(key_bytes, None, lost, delay)
    metadata, committed_offset, leader_epoch, topic_id, expire_timestamp, age = pick(_VALUES)
    value = offset_value(
        version,
        committed_offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=START_TIME - age,
        expire_timestamp=expire_timestamp,
        topic_id=topic_id,
    )
    return PlannedRecord(key_bytes, value, lost, delay)


def _other_records(group_id: str) -> list[tuple[bytes, bytes | None]]:
    """Return group records to mix with offsets; the last has an unknown type."""
    empty: dict[str, Any] = {"protocol_type": "consumer", "generation": 2, "protocol": None, "leader": None}
    stable: dict[str, Any] = {"protocol_type": "consumer", "generation": 1, "protocol": "range", "leader": "m1"}
    classic = group_metadata_key(group_id)
    return [
        (classic, group_metadata_value(3, **empty, state_timestamp=START_TIME)),
        *((classic, group_metadata_value(version, **stable, members=(_MEMBER,))) for version in range(4)),
        (classic, None),
        (b"\x00\x03" + string(group_id), b"\x00\x00\x00\x00\x00\x0a\x00"),  # ConsumerGroupMetadata, epoch 10
        (b"\x00\x03" + string(group_id), None),
        (b"\x03\xe7" + string(group_id), b"\x00\x00\x01"),
    ]
