"""Records what the folder of a log lacks before offsetlake writes to it first."""

from pathlib import Path

from offsetlake.log.disk.absent_partitions import groups_in, head, partition_count
from offsetlake.log.disk.folder import describe
from offsetlake.log.disk.lacking import LACKING_FILE, Lacking
from offsetlake.log.disk.segments import partition_folders
from offsetlake.log.positions import LOG_TOPICS, OFFSETS_TOPIC, LogPartition
from offsetlake.util.atomic_files import replacing


def record_lacking(folder: Path) -> None:
    """Write the file of what a folder lacks, if that is anything, before offsetlake writes to it first.

    The number of partitions is known as an ingest knows it: by their numbers, and by the groups in them.

    Raises:
        LogUnavailable, LogMismatch: As `describe`.
        OSError: The file cannot be written.
    """
    present, extent = partition_folders(folder, *LOG_TOPICS), describe(folder)
    found = [where for where in present if where.topic == OFFSETS_TOPIC]
    groups = {(group, where.partition) for where in found for group in groups_in(head(present[where]))}
    absent = [where for where in extent.absent if where.topic == OFFSETS_TOPIC]
    named = max((where.partition for where in (*found, *absent)), default=-1) + 1
    count = partition_count(groups, {where.partition for where in found}, named)
    added = [LogPartition(OFFSETS_TOPIC, number) for number in range(named, count)]
    lacking = Lacking([*extent.absent, *added], extent.missing)
    if lacking.absent or lacking.missing:
        with replacing(folder / LACKING_FILE) as file:
            file.write_text(lacking.to_json(), encoding="utf-8")
