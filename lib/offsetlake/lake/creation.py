"""The version of a lake; creates its tables, or upgrades those that an older program made, which is idempotent."""

import json

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from offsetlake.errors import LakeUnusable
from offsetlake.lake.definitions import FORMER_NAMES, LAKE_VERSION, TABLES, create_table, definition, upgrade_table
from offsetlake.lake.delta.log_entries import entries, entry_name, newest_version, sealed, segment_fault
from offsetlake.lake.location.location import LOCK, Location
from offsetlake.lake.small_files import VERIFIED

MARKER = "offsetlake.json"
_MARKER_LOST = (
    "check that this is a lake; if it is, restore the file from a copy of the lake, or, if no newer offsetlake has "
    f'written to the lake, write {{"version": {LAKE_VERSION}}} to it'
)
_ATTEMPTS = 3


def stored_version(location: Location) -> int:
    """Return the version of the lake at a location, 0 if there is none; raise LakeUnusable for one that is newer."""
    try:
        content = location.read(MARKER)
        version = int(json.loads(content)["version"]) if content is not None else 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LakeUnusable(f"cannot read {location}/{MARKER} ({error}): {_MARKER_LOST}") from error
    if version <= 0 and VERIFIED in location.names():
        raise LakeUnusable(f"{location}/{MARKER} of the lake is missing: {_MARKER_LOST}")
    if version > LAKE_VERSION:
        raise LakeUnusable(
            f"the lake {location} is at version {version}, written by a newer offsetlake; "
            f"this version supports lakes up to version {LAKE_VERSION}: upgrade offsetlake"
        )
    return version


def refuse_other_content(location: Location) -> None:
    """Raise LakeUnusable if a location without a lake has other content than the beginning of one."""
    if {*location.names()} - {*TABLES, *FORMER_NAMES, LOCK}:
        raise LakeUnusable(
            f"the folder {location} is not empty and does not contain an offsetlake lake: "
            "name an empty or a new folder with --lake"
        )


def make_tables(location: Location, version: int) -> None:
    """Create the tables of a lake of a version, 0 if there is none yet, or upgrade them to the current version."""
    _rename_tables(location)
    for table in TABLES:
        folder = location.child(table)
        if version == 0:
            _remove_torn_log(folder)
        log = folder.child("_delta_log")
        before = newest_version(log.names())
        _make_table(str(folder), table, version)
        if log.tears_writes:
            _seal(log, before)
        log.sync(files=True)  # delta-rs writes without fsync
        folder.sync(files=False)


def _seal(log: Location, after: int) -> None:
    """Write the checksums into the entries that delta-rs has written after a version."""
    for version in sorted(entries(log.names(entry_name(after) if after >= 0 else ""))):
        content = log.read(entry_name(version)) or b""
        log.replace(entry_name(version), sealed(version, content))


def _remove_torn_log(folder: Location) -> None:
    """Remove the log of a table without data files that a power failure during its creation has torn."""
    log = folder.child("_delta_log")
    if {*folder.names()} == {log.name} and segment_fault(log):
        for name in log.names():
            log.discard(name)


def _make_table(uri: str, table: str, version: int) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            if DeltaTable.is_deltatable(uri):
                upgrade_table(uri, definition(table), version)
            else:
                create_table(uri, definition(table))
        except CommitFailedError:  # the answer of an object store to a commit was lost
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return


def _rename_tables(location: Location) -> None:
    """Rename the folders of tables that an older program made under former names."""
    names = {*location.names()}
    for former, table in FORMER_NAMES.items():
        if former not in names:
            continue
        if table in names:
            raise LakeUnusable(
                f"the lake {location} contains the table {table} also under its former name {former}, because an older "
                "offsetlake wrote to it after an interrupted upgrade: move one of the two folders away"
            )
        location.rename(former, table)
