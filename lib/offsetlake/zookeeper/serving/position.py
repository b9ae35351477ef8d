"""How far the log is in ZooKeeper: a file in the folder of the log.

The file has the address of ZooKeeper and the log offset of each log partition up to which all changes are in ZooKeeper.
It is written after them, so that what a killed process did not write or delete is found in the log at the next start
(`offsetlake.zookeeper.serving.log_scan`).
"""

import json
from collections.abc import Mapping
from pathlib import Path

from offsetlake.util.atomic_files import replacing

FILE = "offsetlake-zookeeper.json"


def load_position(folder: Path, address: str) -> dict[int, int] | None:
    """Return the position by log partition; None if there is none for this address."""
    try:
        saved = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return {int(partition): int(end) for partition, end in saved["position"][address].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def save_position(folder: Path, address: str, position: Mapping[int, int]) -> None:
    """Replace the position."""
    with replacing(folder / FILE) as file:
        file.write_text(json.dumps({"position": {address: position}}), encoding="utf-8")
