"""Data folders written by the oracle, read like the data source reads them."""

from itertools import pairwise
from pathlib import Path

from offsetlake.kafka.batches.reader import CorruptRegion, read_batches
from offsetlake.log.disk.folder import describe, fetch, slices
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition, OffsetRange
from support.oracle.log_writer import Batch, Record, batch_bytes

TIME = 1_700_000_000_000
PARTITION = LogPartition(OFFSETS_TOPIC, 0)

Row = tuple[int, bytes | None, bytes | None]


def batch(first: int, count: int = 3, *, size: int = 20, gap: int = 0, **fields: object) -> Batch:
    records = tuple(
        Record(first + i, TIME, b"key%04d" % (first + i), bytes([1 + i % 250]) * size) for i in range(count)
    )
    return Batch(records=records, last_offset=first + count - 1 + gap, **fields)  # type: ignore[arg-type]


def write(
    folder: Path, *segments: list[Batch] | tuple[int, list[Batch]], partition: LogPartition = PARTITION
) -> list[Path]:
    """Write segments of batches, named by their first offset or the given one."""
    directory = folder / str(partition)
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for segment in segments:
        base, batches = segment if isinstance(segment, tuple) else (segment[0].first, segment)
        paths.append(directory / f"{base:020d}.log")
        paths[-1].write_bytes(b"".join(map(batch_bytes, batches)))
    return paths


def read(
    folder: Path, wanted: OffsetRange, partition: LogPartition = PARTITION
) -> tuple[list[Row], list[CorruptRegion]]:
    """Return the rows of a range of offsets, and its corrupt regions."""
    rows: list[Row] = []
    regions: list[CorruptRegion] = []
    for piece in slices(folder, partition, wanted):
        for found in fetch(piece):
            if isinstance(found, CorruptRegion):
                regions.append(found)
                continue
            records, corrupt = read_batches(found)
            regions += [region for region in corrupt if region.log_offset >= piece.offsets.start]
            for at, offset in enumerate(records.log_offset.tolist()):
                if piece.offsets.start <= offset < piece.offsets.end:
                    rows.append((offset, records.key(at), records.value(at)))
    return rows, regions


def read_all(folder: Path, partition: LogPartition = PARTITION) -> tuple[list[Row], list[CorruptRegion]]:
    return read(folder, describe(folder).ranges[partition], partition)


def read_in_parts(
    folder: Path, bounds: list[int], partition: LogPartition = PARTITION
) -> tuple[list[Row], list[CorruptRegion]]:
    parts = [read(folder, OffsetRange(*pair), partition) for pair in pairwise(bounds)]
    return [row for rows, _ in parts for row in rows], [region for _, regions in parts for region in regions]


def rows_of(batches: list[Batch]) -> list[Row]:
    return [(record.offset, record.key, record.value) for each in batches for record in each.records]
