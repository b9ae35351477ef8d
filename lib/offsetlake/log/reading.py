"""Plans the reading of a log, and decodes what was read into columns; it needs no Spark."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from offsetlake.errors import BadRequest
from offsetlake.kafka.batches.reader import CorruptRegion, Records, read_batches
from offsetlake.kafka.chunk import AUDIT_EVENTS, COMMITS, OTHERS, Chunk, decode_chunk
from offsetlake.kafka.commits.steps import Steps
from offsetlake.log.address import LogAddress, Slice
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition, OffsetRange

READER_BYTES = 64 << 20  # small slices are read together, up to this many bytes a reader

_LOG_PARTITION = pa.field("log_partition", pa.int32())
COMMITS_SCHEMA = pa.schema([_LOG_PARTITION, *COMMITS])
OTHERS_SCHEMA = pa.schema([pa.field("log_topic", pa.string()), _LOG_PARTITION, *OTHERS])
_AUDIT_EVENTS_SCHEMA = pa.schema([_LOG_PARTITION, *AUDIT_EVENTS])


@dataclass(frozen=True, slots=True)
class SliceGroup:
    """The slices that one reader reads, of any log partitions, one after the other."""

    slices: list[Slice]


def plan_readers(address: LogAddress, ranges: Mapping[LogPartition, OffsetRange], at_once: int = 1) -> list[SliceGroup]:
    """Cut ranges into work of about equal size: a large partition into several groups, many small ones into one.

    If there are several groups, of which `at_once` are read at the same time, their number is a multiple of that.
    """
    slices = [piece for where, offsets in ranges.items() for piece in address.slices(where, offsets)]
    groups = _grouped(slices)
    return groups if len(groups) <= 1 else _divided(slices, len(groups) + -len(groups) % at_once)


def ranges_to_json(ranges: Mapping[LogPartition, OffsetRange]) -> str:
    """Return ranges as the option `ranges` of the data source and the plans of runs have them."""
    return json.dumps({str(where): list(offsets) for where, offsets in ranges.items()})


def ranges_from_json(text: str) -> dict[LogPartition, OffsetRange]:
    """Return the ranges that `ranges_to_json` wrote; raise BadRequest if the text is no such JSON."""
    try:
        named = {name.rpartition("-"): OffsetRange(*map(int, pair)) for name, pair in json.loads(text).items()}
        return {LogPartition(topic, int(partition)): offsets for (topic, _, partition), offsets in named.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise BadRequest(f'ranges must be JSON such as {{"{OFFSETS_TOPIC}-0": [0, 100]}}, not {text!r}') from error


def decode(piece: Slice, found: bytes | CorruptRegion, before: Steps | None = None) -> Chunk:
    """Decode what `LogAddress.fetch` found of a slice; `before` are the steps of what is directly before it in the log.

    `commits` and `audit_events` have `log_partition` before the columns of a chunk, `others` has `log_topic` and
    `log_partition`.
    """
    topic, partition = piece.log_partition
    if isinstance(found, CorruptRegion):
        records, corrupt = read_batches(b"")[0], [found]
    else:
        records, corrupt = read_batches(found)
        # A batch across a slice's start belongs to the slice before: its first offset is there.
        corrupt = [region for region in corrupt if region.log_offset >= piece.offsets.start]
    commits, others, audit_events, steps = decode_chunk(topic, _within(records, piece.offsets), corrupt, before)
    tables = (commits, others, audit_events)
    partitions = [pa.array(np.full(rows.num_rows, partition, np.int32)) for rows in tables]
    topics = pa.array([topic] * others.num_rows, pa.string())
    return Chunk(
        pa.RecordBatch.from_arrays([partitions[0], *commits.columns], schema=COMMITS_SCHEMA),
        pa.RecordBatch.from_arrays([topics, partitions[1], *others.columns], schema=OTHERS_SCHEMA),
        pa.RecordBatch.from_arrays([partitions[2], *audit_events.columns], schema=_AUDIT_EVENTS_SCHEMA),
        steps,
    )


def _grouped(slices: list[Slice]) -> list[SliceGroup]:
    groups: list[SliceGroup] = []
    room = 0
    for piece in slices:
        if piece.size > room:
            groups.append(SliceGroup([]))
            room = READER_BYTES
        groups[-1].slices.append(piece)
        room -= piece.size
    return groups


def _divided(slices: list[Slice], number: int) -> list[SliceGroup]:
    """Divide slices, in their order, into at most `number` groups of about the same size."""
    groups: list[list[Slice]] = [[] for _ in range(number)]
    total, before = sum(piece.size for piece in slices), 0
    for piece in slices:
        groups[(2 * before + piece.size) * number // (2 * total + 1)].append(piece)  # by the middle of the slice
        before += piece.size
    return [SliceGroup(group) for group in groups if group]


def _within(records: Records, offsets: OffsetRange) -> Records:
    inside = (records.log_offset >= offsets.start) & (records.log_offset < offsets.end)
    return records if inside.all() else records.where(inside)
