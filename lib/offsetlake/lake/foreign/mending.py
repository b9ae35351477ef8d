"""Repairs Delta logs that cannot be read: without their damaged checkpoints, or as the log of an empty table."""

import json
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from offsetlake.errors import LakeUnusable
from offsetlake.lake.definitions import STATE, create_table, definition
from offsetlake.lake.delta.log_entries import entries, entries_fault, entry_name, newest_version
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.location import Location
from offsetlake.util.temporary_folders import temporary_folder

_LAST_CHECKPOINT = "_last_checkpoint"


def mend(lake: Lake, table: str, verified: int) -> str:
    """Make a table readable, and return what was done; empty if it is readable. The lake must be locked.

    A state table whose log has lost commits becomes an empty table of a version after `verified`. Raises LakeUnusable
    if another table has lost commits.
    """
    if (error := _fault(lake, table)) is None:
        return ""
    log = lake.table_location(table).child("_delta_log")
    with lake.location.errors():
        names = log.names()
        if _without_damaged_checkpoints(log, names):
            done = f"removed the damaged checkpoint of table {table}, all commits of which are whole"
        elif table in STATE:
            _empty(log, table, max(newest_version(names), verified) + 1)
            done = f"replaced the damaged Delta log of table {table}"
        else:
            raise error
    lake.close_table(table)
    if (error := _fault(lake, table)) is not None:
        raise error
    return done


def _fault(lake: Lake, table: str) -> LakeUnusable | None:
    """Return the error with which a table cannot be opened; None if it can."""
    try:
        lake.without_rows(table)
    except LakeUnusable as error:
        return error
    return None


def _without_damaged_checkpoints(log: Location, names: list[str]) -> bool:
    """Remove the checkpoints after the newest one that can be read, if all commits after it are whole; return that."""
    listed, newest = entries(names), newest_version(names)
    checkpoints = sorted({name for name in names if name[:20].isdigit() and ".checkpoint." in name}, reverse=True)
    for at, name in enumerate([*checkpoints, None]):
        if name is not None and not _is_readable(log, name):
            continue
        first = -1 if name is None else int(name[:20])
        if not {*range(first + 1, newest + 1)} <= listed or entries_fault(log, first + 1, newest):
            return False
        log.discard(_LAST_CHECKPOINT)
        for damaged in checkpoints[:at]:
            log.discard(damaged)
        return newest >= 0
    return False


def _is_readable(log: Location, name: str) -> bool:
    try:
        return bool(pq.read_table(BytesIO(log.read(name) or b"")).num_rows)
    except (pa.ArrowException, OSError):
        return False


def _empty(log: Location, table: str, version: int) -> None:
    """Write the log of an empty table: a checkpoint, before which no reader reads, and the entry of its version.

    Versions continue, because readers keep tables open by their version. If this is interrupted, the log is still
    damaged, or complete.
    """
    log.prepare()
    with temporary_folder("offsetlake-logs-") as folder:
        create_table(str(folder / table), definition(table))
        created = DeltaTable(str(folder / table))
        created.create_checkpoint()
        former = folder / table / "_delta_log"
        checkpoint = f"{created.version():020}.checkpoint.parquet"
        hint = json.loads((former / _LAST_CHECKPOINT).read_bytes()) | {"version": version}
        log.create(f"{version:020}.checkpoint.parquet", (former / checkpoint).read_bytes())
        log.create(entry_name(version), (former / entry_name(created.version())).read_bytes())
        log.replace(_LAST_CHECKPOINT, json.dumps(hint).encode())
