"""Copies the offset commit log from and to the data folder of a stopped broker."""

import shutil
from pathlib import Path

MADE_ANEW = ("*.index", "*.timeindex", "*.txnindex", "*.snapshot", "leader-epoch-checkpoint")
"""Files that a broker derives from the segments of a partition."""


OFFSETS = "__consumer_offsets"


def copy_log(data: Path, log: Path, topic: str = OFFSETS) -> None:
    """Copy the segments of the offset commit log, or of another topic, without `meta.properties`."""
    for partition in data.glob(f"{topic}-*"):
        (log / partition.name).mkdir(parents=True)
        for segment in partition.glob("*.log"):
            shutil.copy(segment, log / partition.name)


def put_back(log: Path, data: Path, topic: str = OFFSETS) -> None:
    """Replace a log of a broker by the segments of another."""
    for partition in log.glob(f"{topic}-*"):
        there = data / partition.name
        for pattern in ("*.log", *MADE_ANEW):
            for file in there.glob(pattern):
                file.unlink()
        for segment in partition.glob("*.log"):
            shutil.copy(segment, there)
