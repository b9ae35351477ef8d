"""What a folder lacked of its log before offsetlake wrote to it first, in a file of the folder.

From the first write on, a partition that is not there has no record, and new records take the log offsets of missing
ones, so the folder itself does not show any more what was lost.
"""

import json
from pathlib import Path
from typing import NamedTuple

from offsetlake.errors import LogUnavailable
from offsetlake.log.positions import LogPartition, OffsetRange

LACKING_FILE = "offsetlake-lacking.json"
LACKING_REMEDY = (
    "Stop the server, copy the folders of these partitions into the folder of the log, and start the server again."
)


class Lacking(NamedTuple):
    """What a folder lacked: partitions, and log offsets of partitions that it had."""

    absent: list[LogPartition]
    missing: list[tuple[LogPartition, OffsetRange]]

    def to_json(self) -> str:
        """Return the content of the file."""
        missing = [[*where, *offsets] for where, offsets in self.missing]
        return json.dumps({"absent": self.absent, "missing": missing})


def read_lacking(folder: Path) -> Lacking:
    """Return what a folder lacked before offsetlake wrote to it first; nothing if that was nothing.

    Raises:
        LogUnavailable: The file cannot be read.
    """
    file = folder / LACKING_FILE
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        absent = [LogPartition(*where) for where in stored["absent"]]
        return Lacking(absent, [(LogPartition(*part[:2]), OffsetRange(*part[2:])) for part in stored["missing"]])
    except FileNotFoundError:
        return Lacking([], [])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LogUnavailable(
            f"{file}, which names what the log lacked before its first write, cannot be read: {error}. Restore it from "
            "a copy of the folder."
        ) from error
