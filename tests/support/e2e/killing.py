"""A program that kills jobs: each runs in a forked child that sends itself SIGKILL just before one of its writes.

    python -m support.e2e.killing FOLDER [every-write]

For each scenario, a first child completes and lists its writes. The next ones are killed before the writes that KILLS
names, or with `every-write`, which takes long, before each write. After a kill, another child runs a recovery of the
scenario, the recoveries in turn, and compares the lake with one whose jobs were never killed; every recovery runs after
the first child, and with `every-write` after each. The program prints one JSON object per child that is killed or
completes: `scenario`; `at`, the kind of write, empty if the child completed; `problem`, empty if there is none.

The parent imports everything and never opens a Delta table, because the threads that this starts do not survive a fork.
"""

import gc
import io
import json
import os
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.table import TableAlterer, TableOptimizer

from offsetlake.lake.lake import Lake
from offsetlake.log import reading
from offsetlake.log.address import LogAddress
from offsetlake.log.writer import appender
from offsetlake.pipeline.emit import log_writer
from support.e2e.killing_scenarios import (
    AGAIN_AND_AGAIN,
    EXPECTED,
    KILLS,
    NEVER_KILLED,
    NOW,
    PARTS,
    SCENARIOS,
    Job,
    Place,
    Recovery,
    check,
    run_again,
    tables_of,
)


class LogFile(io.FileIO):
    """A segment file that writes in two parts, so that a kill between them leaves a torn write."""

    def write(self, data: Any) -> int:
        half = bytes(data)[: max(1, len(data) // 2)]
        return self.write_part(half) + self.write_part(bytes(data)[len(half) :])

    def write_part(self, data: bytes) -> int:
        return super().write(data)


WRITES: dict[str, tuple[Any, str]] = {
    "mkdir": (os, "mkdir"),
    "fsync": (os, "fsync"),
    "replace": (os, "replace"),
    "unlink": (os, "unlink"),
    "open": (io, "open"),
    "create table": (DeltaTable, "create"),
    "add constraint": (TableAlterer, "add_constraint"),
    "commit": (DeltaTable, "create_write_transaction"),
    "set property": (TableAlterer, "set_table_properties"),
    "link": (os, "link"),
    "close data file": (pq.ParquetWriter, "close"),
    "optimize": (TableOptimizer, "compact"),
    "vacuum": (DeltaTable, "vacuum"),
    "checkpoint": (DeltaTable, "create_checkpoint"),
    "append": (LogFile, "write_part"),
    "fdatasync": (os, "fdatasync"),
}


class Kill:
    """Kills this process just before write number `at` of some kinds; with 0 it reports the kinds of them all instead.

    The number is one among writes of these kinds, because threads write at the same time.
    """

    def __init__(self, at: int, report: int, kinds: Container[str] = WRITES) -> None:
        self._at, self._left, self._report, self._kinds = at, at, report, kinds
        for name, (owner, function) in WRITES.items():
            setattr(owner, function, self._before(name, getattr(owner, function)))

    def _before(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **kwargs: Any) -> Any:
            reads = name == "open" and not {*args[1]} & {*"wax+"}  # the arguments as pathlib passes them: path, mode, …
            of_copies = "offsetlake-logs-" in str(args[0]) or "dir_fd" in kwargs  # `rmtree` passes a `dir_fd`
            if name in self._kinds and not reads and not of_copies and not kwargs.get("dry_run"):
                self._left -= 1
                if self._at == 0:
                    os.write(self._report, f"{name}\n".encode())
                elif self._left == 0:
                    os.write(self._report, name.encode())
                    os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return write


def forked(work: Callable[[int], object]) -> tuple[str, bool]:
    """Run work in a child; return what it wrote to its file descriptor, or its traceback, and whether it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(writing)
        except BaseException:  # noqa: BLE001 - the parent reports any failure
            os.write(writing, traceback.format_exc().encode()[-60_000:])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as report:
        written = report.read()
    return written, os.WIFSIGNALED(os.waitpid(child, 0)[1])


def must(work: Callable[[int], object]) -> str:
    written, killed = forked(work)
    if killed or written.startswith("Traceback"):
        raise RuntimeError(written or "Killed by another process.")
    return written


def never_killed(place: Place, part: float | str, jobs: tuple[Job, ...], report: int) -> None:
    for job in jobs:
        job(place)
    with os.fdopen(report, "w", encoding="utf-8") as file:
        json.dump(tables_of(Lake.open(place.lake), part), file)


def warm_up(log: LogAddress) -> None:
    """Load compiled code once, which every child would otherwise load again."""
    for group in reading.plan_readers(log, log.describe().ranges):
        for piece, content in log.fetch(group.slices):
            reading.decode(piece, content)


def kill_at_writes(name: str, folder: Path, kills: Mapping[str, int] | None) -> None:
    """Kill jobs before some writes, by the number of each kind; with None before every write."""
    scenario = SCENARIOS[name]
    base, killed, place = (Place(folder / name) for name in ("base", "killed", "place"))

    def recover(recoveries: Sequence[Recovery], _report: int) -> None:
        for recovery in recoveries:
            shutil.rmtree(place.folder, ignore_errors=True)
            shutil.copytree(killed.folder, place.folder)
            recovery.run(place)
            check(place, recovery.part)

    def run(recoveries: Sequence[Recovery], at: int, *kinds: str) -> str:
        """Run the job in a child, then recoveries; return the kinds of its writes, or the one it is killed before."""
        shutil.rmtree(place.folder, ignore_errors=True)
        shutil.copytree(base.folder, place.folder)
        written, was_killed = forked(lambda report: (Kill(at, report, kinds or WRITES), scenario.killed(place)))
        place.folder.rename(killed.folder)
        failed = written.startswith("Traceback")
        problem = written if failed else forked(partial(recover, recoveries))[0]
        report_kill(name, written if was_killed else "", problem)
        shutil.rmtree(killed.folder)
        return written

    # A lake requires its log at the same path, so every run uses the same path.
    must(lambda _: scenario.prepare(place))
    place.folder.rename(base.folder)
    writes = Counter(run(scenario.recoveries, 0).splitlines())
    in_turn = cycle(scenario.recoveries)
    for kind, number in (kills or writes).items():
        for at in at_equal_distances(writes[kind], number):
            run(scenario.recoveries if kills is None else [next(in_turn)], at, kind)


def at_equal_distances(count: int, number: int) -> list[int]:
    """Return `number` of the numbers from 1 to `count`, neither the first nor the last if others can be chosen."""
    return [count * (2 * index + 1) // (2 * number) + 1 for index in range(number)]


def kill_again_and_again(folder: Path) -> None:
    """Kill runs on one lake: the first before its first write, the next before its second, until one completes.

    After the lake is created, which has many writes, the counting begins again.
    """
    place = Place(folder / "place")
    place.write_log(PARTS[1])
    at, killed, created = 0, True, False
    while killed:
        at += 1
        write, killed = forked(lambda report: (Kill(at, report), run_again(place)))  # noqa: B023 - called immediately
        problem = write if write and not killed else "" if killed else forked(lambda _: check(place, PARTS[1]))[0]
        report_kill(AGAIN_AND_AGAIN, write, problem)
        if not created and (place.lake / "offsetlake.json").exists():
            at, created = 0, True


def report_kill(scenario: str, at: str, problem: str) -> None:
    sys.stdout.write(json.dumps({"scenario": scenario, "at": at, "problem": problem}) + "\n")


def main(folder: Path, *, every_write: bool) -> None:
    log_writer.now_ms = lambda: NOW  # type: ignore[attr-defined]  # the log must not depend on the current time
    appender.FileIO = LogFile  # type: ignore[misc]
    for part in PARTS:
        place = Place(folder / f"expected-{part}")
        place.write_log(part)
        EXPECTED[part] = json.loads(must(partial(never_killed, place, part, (run_again,))))
    for done, jobs in NEVER_KILLED.items():
        EXPECTED[done] = json.loads(must(partial(never_killed, Place(folder / f"expected-{done}"), done, jobs)))
    warm_up(LogAddress(folder=place.folder / "log"))
    gc.collect()
    gc.freeze()  # otherwise a collection in a child copies all pages of its parent
    for scenario in SCENARIOS:
        kill_at_writes(scenario, folder / scenario, None if every_write else KILLS[scenario])
    kill_again_and_again(folder / AGAIN_AND_AGAIN)


if __name__ == "__main__":
    main(Path(sys.argv[1]), every_write=sys.argv[2:] == ["every-write"])
