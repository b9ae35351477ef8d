"""Reads a part of the log in a Spark task, and writes one data file per history table."""

from dataclasses import dataclass

import pyarrow as pa

from offsetlake.lake.definitions import HISTORY
from offsetlake.lake.files import FileChanges, TableFile
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
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
        for piece, batches in reading.log.fetch(group.slices):
            chunk = decode(piece, batches)
            for table, records in (("offset_commits", chunk.commits), ("audit_events", chunk.audit_events)):
                run = pa.repeat(pa.scalar(reading.run_id, pa.int64()), records.num_rows)
                files[table].write(pa.table(records).append_column("ingest_run", run))
            for table, rows in of_others(chunk.others, reading.run_id).items():
                files[table].write_rows(rows)
        return {table: FileChanges(added=file.close()) for table, file in files.items()}
    except BaseException:
        for file in files.values():
            file.discard()
        raise
