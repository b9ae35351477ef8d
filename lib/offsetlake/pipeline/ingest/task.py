"""Reads a part of the log in a Spark task, and writes one data file per history table."""

from dataclasses import dataclass

import pyarrow as pa

from offsetlake.kafka.chunk import Chunk
from offsetlake.kafka.commits.steps import UNKNOWN
from offsetlake.lake.definitions import HISTORY
from offsetlake.lake.files import FileChanges, TableFile
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress, Slice
from offsetlake.log.reading import SliceGroup, decode
from offsetlake.pipeline.ingest.rows import of_others


@dataclass(frozen=True, slots=True)
class Reading:
    """What all tasks of an ingest share."""

    log: LogAddress
    lake: Lake
    run_id: int


def read_history(reading: Reading, group: SliceGroup) -> dict[str, FileChanges]:
    """Write every record of the slices to its table, and return the files to commit.

    Memory is bounded by a few chunks of the log and a row group, independent of the length of the slices.
    """
    files = {table: TableFile(reading.lake, table) for table in HISTORY}
    try:
        read: tuple[Slice, Chunk] | None = None
        for piece, batches in reading.log.fetch(group.slices):
            chunk = decode(piece, batches, read[1].steps if read and _continues(read[0], piece) else None)
            if read is not None:  # the steps of a chunk are complete when the next one was read
                files["offset_commits"].write(_commits(read[1], reading.run_id))
            read = piece, chunk
            files["audit_events"].write(_of_run(chunk.audit_events, reading.run_id))
            for table, rows in of_others(chunk.others, reading.run_id).items():
                files[table].write_rows(rows)
        if read is not None:
            files["offset_commits"].write(_commits(read[1], reading.run_id))
        return {table: FileChanges(added=file.close()) for table, file in files.items()}
    except BaseException:
        for file in files.values():
            file.discard()
        raise


def _continues(before: Slice, piece: Slice) -> bool:
    """Return whether no record is between what was read of two slices, one after the other."""
    adjacent = piece is before or piece.offsets.start == before.offsets.end
    return adjacent and piece.log_partition == before.log_partition


def _commits(chunk: Chunk, run_id: int) -> pa.Table:
    """Return the rows of `offset_commits` of a chunk, with its steps."""
    steps = chunk.steps
    rows = _of_run(chunk.commits.drop_columns(["superseded"]), run_id)
    columns = {
        "superseded": pa.array(steps.superseded),
        "repeats": pa.array(steps.repeats, mask=steps.repeats == UNKNOWN),
        "routine": pa.array(steps.routine),
    }
    return pa.table({**{name: rows[name] for name in rows.column_names}, **columns})


def _of_run(records: pa.RecordBatch, run_id: int) -> pa.Table:
    run = pa.repeat(pa.scalar(run_id, pa.int64()), records.num_rows)
    return pa.table(records).append_column("ingest_run", run)
