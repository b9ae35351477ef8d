"""One reader of the log, as it runs in a Spark task: a stretch of the log in, one data file a history table out."""

from dataclasses import dataclass

import pyarrow as pa

from offsetlake.lake.files import FileChanges, TableFile
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.reading import SliceGroup, decode
from offsetlake.pipeline.ingest.rows import OF_OTHERS, of_others

HISTORY = ("offset_commits", *OF_OTHERS, "audit_events")


@dataclass(frozen=True, slots=True)
class Reading:
    """What all readers of one ingest share."""

    log: LogAddress
    lake: Lake
    run_id: int


def read_history(reading: Reading, group: SliceGroup) -> dict[str, FileChanges]:
    """Write every record of the slices to the table it belongs to; gives the files for the commit that ends the job.

    Memory is a few chunks of the log and a row group, however long the slices are.
    """
    files = {table: TableFile(reading.lake, table) for table in HISTORY}
    try:
        for piece, found in reading.log.fetch(group.slices):
            chunk = decode(piece, found)
            for table, of in (("offset_commits", chunk.commits), ("audit_events", chunk.audit_events)):
                run = pa.repeat(pa.scalar(reading.run_id, pa.int64()), of.num_rows)
                files[table].write(pa.table(of).append_column("ingest_run", run))
            for table, rows in of_others(chunk.others, reading.run_id).items():
                files[table].write_rows(rows)
        return {table: FileChanges(added=file.close()) for table, file in files.items()}
    except BaseException:
        for file in files.values():
            file.discard()
        raise
