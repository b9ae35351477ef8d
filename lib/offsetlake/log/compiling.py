"""Compiles the functions that read a log by reading a small log: `python -m offsetlake.log.compiling`.

Numba caches compiled functions next to the package or, if that folder is read-only, in the folder that NUMBA_CACHE_DIR
names or in the user's cache. `make setup` runs this module so that no command has to compile later.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from offsetlake.kafka.audit import events as audit_events
from offsetlake.kafka.batches import kernels, words
from offsetlake.kafka.commits import commit_kernels, commit_parts, steps
from offsetlake.kafka.commits.encoding import offset_commit_key, offset_commit_value
from offsetlake.kafka.compiled import Compiled
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.log.address import LogAddress
from offsetlake.log.reading import decode
from offsetlake.log.tails import TailQuery

COMPILING = "compiling the functions that read the log (once after an installation)"

_MODULES = (kernels, words, commit_kernels, commit_parts, steps, audit_events)


def compile_loops(report: Callable[[str], None]) -> None:
    """Compile the functions that are not in Numba's cache; call `report` before, unless there are none."""
    if all(map(_is_cached, _loops())):
        return
    report(COMPILING)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder)
        log = LogAddress(folder=folder)
        for log_partition, offsets in log.describe().ranges.items():
            before = None
            for log_slice, content in log.fetch(log.slices(log_partition, offsets)):
                before = decode(log_slice, content, before).steps
            log.read_tails([TailQuery(log_partition, offsets.end)])


def _loops() -> list[Compiled]:
    """Return the compiled functions, except those that are compiled as a part of each function that calls them."""
    loops = [value for module in _MODULES for value in vars(module).values() if isinstance(value, Compiled)]
    return [loop for loop in dict.fromkeys(loops) if loop.targetoptions.get("inline") != "always"]


def _is_cached(loop: Any) -> bool:
    """Return whether Numba's cache contains the current version of a function, compiled by this version of Numba."""
    return bool(loop._cache._cache_file._load_index())  # noqa: SLF001 - Numba has no public API for it


def _write(folder: Path) -> None:
    """Write a record of each kind that the functions parse, some with the same key, and bytes that are not a batch."""
    # Imported late, because most processes have nothing to compile.
    from offsetlake.kafka.audit.headers import COMMIT, audit_headers  # noqa: PLC0415
    from offsetlake.kafka.batches import writer  # noqa: PLC0415
    from offsetlake.log.writer.appending import appending  # noqa: PLC0415

    parts = [("commit.id", bytes(8)), ("commit.size", (2).to_bytes(4, "big"))]
    audit = audit_headers(COMMIT, "User:nobody", b"", "")
    key = offset_commit_key(b"group", b"topic") + bytes(4)
    values = [
        None,
        offset_commit_value(1, -1, b"m", 0, 0, ZERO_UUID),
        offset_commit_value(2, -1, b"m", 0, -1, ZERO_UUID),
        offset_commit_value(3, -1, b"m", 0, -1, b"t" * 16),
    ]
    producer = writer.Producer(1, 0)
    with appending(folder, "compiling") as appender:
        for headers, batch_producer in (
            (writer.NO_HEADERS, writer.NO_PRODUCER),
            (parts, writer.NO_PRODUCER),
            (audit, writer.NO_PRODUCER),
            (writer.NO_HEADERS, producer),
        ):
            appender.append(0, [writer.record_batch(0, [(key, value) for value in values], headers, batch_producer)])
        damage = writer.Batch(bytearray(100), 0)
        appender.append(0, [damage, writer.marker_batch(0, producer, committed=True)])


if __name__ == "__main__":
    compile_loops(lambda text: print(text, file=sys.stderr))  # noqa: T201 - the output of the program
