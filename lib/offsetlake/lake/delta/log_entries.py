"""Entries of Delta logs: a checksum that each commit of offsetlake has, and what a crash or another program damages.

Delta readers accept an entry that is empty, or that ends after some of its lines, as a commit with fewer actions. File
systems leave such files after a power failure, and copies that were interrupted.
"""

import json
import re
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

CHECKSUM = "offsetlake.checksum"
"""The key in `commitInfo` of the CRC-32 of an entry, which is computed with NO_CHECKSUM as the value."""
NO_CHECKSUM = "00000000"

_ENTRY, _CHECKPOINT = re.compile(r"\d{20}\.json"), re.compile(r"\d{20}\.checkpoint\.")
_LAST_CHECKPOINT = "_last_checkpoint"
_CHECKSUM = re.compile(rb'"%s":"([0-9a-f]{8})"' % re.escape(CHECKSUM.encode()))
_READS_AT_ONCE = 8


class DeltaLog(Protocol):
    """The files of a Delta log: a location, or the copy of a log."""

    def names(self, after: str = "") -> list[str]:
        """Return the names of the files that follow `after`."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""


def entry_name(version: int) -> str:
    """Return the name of the entry of a Delta log that contains the commit of a version."""
    return f"{version:020}.json"


def entries(names: Iterable[str]) -> set[int]:
    """Return the versions of which a Delta log has an entry."""
    return {int(name[:20]) for name in names if _ENTRY.fullmatch(name)}


def newest_checkpoint(names: Iterable[str]) -> int:
    """Return the newest version of which a Delta log has a checkpoint; -1 if there is none."""
    return max((int(name[:20]) for name in names if _CHECKPOINT.match(name)), default=-1)


def newest_version(names: Iterable[str]) -> int:
    """Return the newest version of which a Delta log has an entry or a checkpoint; -1 if there is none."""
    listed = [*names]
    return max([newest_checkpoint(listed), *entries(listed)])


def last_checkpoint(log: DeltaLog) -> dict[str, Any]:
    """Return the content of `_last_checkpoint`; as readers do, ignore a file that is not valid, or not there."""
    try:
        found = json.loads(log.read(_LAST_CHECKPOINT) or b"")
        return {**found, "version": int(found["version"])}
    except (ValueError, KeyError, TypeError):
        return {"version": -1}


def sealed(version: int, entry: bytes) -> bytes:
    """Return the entry of a version with its checksum in place of NO_CHECKSUM; unchanged if it has none."""
    line, newline, rest = entry.partition(b"\n")
    found = _CHECKSUM.search(line)
    if found is None or found[1] != NO_CHECKSUM.encode():
        return entry
    return line[: found.start(1)] + _checksum(version, entry) + line[found.end(1) :] + newline + rest


def _checksum(version: int, entry: bytes) -> bytes:
    """Return the CRC-32 of the version and the entry: an entry of another version is not the right one either."""
    return f"{zlib.crc32(entry, version):08x}".encode()


def entry_fault(version: int, content: bytes | None) -> str:
    """Return what is wrong with the entry of a version; empty if nothing is."""
    name = entry_name(version)
    if content is None:
        return f"because its log has no {name}"
    if not content.strip(b"\0 \r\n"):
        return f"because {name} in its log is empty"
    line, newline, rest = content.partition(b"\n")
    found = _CHECKSUM.search(line)
    if found and found[1] != NO_CHECKSUM.encode():
        unsealed = line[: found.start(1)] + NO_CHECKSUM.encode() + line[found.end(1) :] + newline + rest
        wrong = _checksum(version, unsealed) != found[1]
        return f"because {name} in its log does not match its checksum" if wrong else ""
    return f"because {name} in its log {why}" if (why := _malformed(content)) else ""


def _malformed(content: bytes) -> str:
    """Return why an entry without a checksum is not a whole commit; empty if it is one."""
    actions: dict[str, Any] = {}
    try:
        for line in content.decode().split("\n"):
            actions |= json.loads(line) if line.strip() else {}
    except (ValueError, TypeError):
        return "is torn: it is not valid JSON"
    info = actions.pop("commitInfo", None)
    if not actions and not _may_be_empty(info):
        return "contains no action"
    return ""


def _may_be_empty(info: object) -> bool:
    """Return whether `commitInfo` may be the only action: some engines record a statement that changed nothing."""
    if not isinstance(info, dict) or CHECKSUM in info:
        return False
    engine = str(info.get("engineInfo", ""))
    return bool(engine) and not (engine.startswith("delta-rs") and info.get("operation") == "WRITE")


def segment_fault(log: DeltaLog, version: int | None = None) -> str:
    """Return what is wrong with the entries from which readers build a table at a version, by default the newest.

    These are the entries after the newest checkpoint before that version.
    """
    hinted = int(last_checkpoint(log)["version"])
    first = hinted if version is None or hinted <= version else -1
    names = log.names(f"{first:020}" if first >= 0 else "")
    newest = newest_version(names) if version is None else version
    checkpoint = newest_checkpoint(name for name in names if int(name[:20] if name[:20].isdigit() else 0) <= newest)
    if checkpoint < first:
        return f"because its log has no checkpoint of version {first}, which _last_checkpoint names"
    return entries_fault(log, checkpoint + 1, newest)


def entries_fault(log: DeltaLog, first: int, last: int) -> str:
    """Return what is wrong with the first damaged entry of a range of versions; empty if none is damaged."""
    versions = range(first, last + 1)
    if len(versions) == 1:
        return entry_fault(first, log.read(entry_name(first)))
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        contents = pool.map(log.read, map(entry_name, versions))
        return next(filter(None, map(entry_fault, versions, contents)), "")
