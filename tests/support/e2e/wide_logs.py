"""A log of few commits with many bytes: several tasks read it, and its few rows are quick to compare."""

from pathlib import Path

from support.oracle.encoders import group_log_partition, offset_key, offset_value
from support.oracle.log_writer import Batch, Record, write_partition

START_TIME = 1_700_000_000_000  # ms
COMMITS = 350
METADATA_LENGTH = 100_000  # a partition is about 35 MB, so two exceed the 64 MiB of one reader


def write_wide_log(folder: Path, groups: list[str], log_partitions: int) -> None:
    """Write the commits of each group, with long metadata, to its log partition; each partition has one group."""
    assert len({group_log_partition(group, log_partitions) for group in groups}) == len(groups)
    for group in groups:
        commits = [
            Record(number, START_TIME + number, offset_key(group, "wide", number % 7), _value(number))
            for number in range(COMMITS)
        ]
        batches = [Batch(records=tuple(commits[start : start + 10])) for start in range(0, COMMITS, 10)]
        write_partition(folder, group_log_partition(group, log_partitions), batches)


def _value(number: int) -> bytes:
    metadata = f"{number} ".ljust(METADATA_LENGTH, "x")
    return offset_value(4, number * 10, commit_timestamp=START_TIME + number, metadata=metadata)
