"""A program that kills jobs: each in a forked child that ends itself by SIGKILL right before one of its writes.

    python -m support.e2e.killing FOLDER SCENARIO[=NUMBER]...

One child is killed at its first write, the next at its second, and so on, until one lives to the end: right before a
write is right after the one before. With NUMBER only before so many writes of each kind, as all of them take minutes:
a run that is not killed lists the writes, and of each kind some are chosen at even distances. Behind each,
another child runs the jobs again, in every way of the scenario, and compares the lake with one whose jobs were never
killed. Prints a JSON object a kill: `scenario`; `at`, the write, empty where none was left; `problem`, empty or what is
wrong.

The parent has imported everything and never touches a Delta table: the threads that would start do not live in a fork.
"""

import gc
import io
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.table import TableAlterer, TableOptimizer

from offsetlake.lake.foreign import remake
from offsetlake.lake.lake import Lake
from offsetlake.log import reading
from offsetlake.log.address import LogAddress
from offsetlake.log.writer import appender
from offsetlake.pipeline.emit import log_writer
from support.e2e.killing_scenarios import (
    AGAIN_AND_AGAIN,
    EXPECTED,
    NEVER_KILLED,
    NOW,
    PARTS,
    SCENARIOS,
    Job,
    Place,
    check,
    run_again,
    tables_of,
)


class LogFile(io.FileIO):
    """A segment of the log that takes what is appended in two parts, so that a kill in between tears it."""

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
    "replace table": (remake, "create_table_with_add_actions"),
    "link": (os, "link"),
    "close data file": (pq.ParquetWriter, "close"),
    "optimize": (TableOptimizer, "compact"),
    "vacuum": (DeltaTable, "vacuum"),
    "checkpoint": (DeltaTable, "create_checkpoint"),
    "append": (LogFile, "write_part"),
    "fdatasync": (os, "fdatasync"),
}


class Kill:
    """Counts the writes of this process and ends it right before the one of this number; with 0 it reports them all."""

    def __init__(self, at: int, report: int) -> None:
        self._at, self._left, self._report = at, at, report
        for name, (owner, function) in WRITES.items():
            setattr(owner, function, self._before(name, getattr(owner, function)))

    def _before(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **kwargs: Any) -> Any:
            reads = name == "open" and not {*args[1]} & {*"wax+"}  # how pathlib calls it: path, mode, …
            if not reads and not kwargs.get("dry_run"):
                self._left -= 1
                if self._at == 0:
                    os.write(self._report, f"{name}\n".encode())
                elif self._left == 0:
                    os.write(self._report, name.encode())
                    os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return write


def forked(work: Callable[[int], object]) -> tuple[str, bool]:
    """Run work in a child: what it has written to the handle it is given, or its traceback; whether it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(writing)
        except BaseException:  # noqa: BLE001 - any failure is for the parent to tell
            os.write(writing, traceback.format_exc().encode()[-60_000:])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as report:
        written = report.read()
    return written, os.WIFSIGNALED(os.waitpid(child, 0)[1])


def must(work: Callable[[int], object]) -> str:
    written, killed = forked(work)
    if killed or written.startswith("Traceback"):
        raise RuntimeError(written or "killed by another")
    return written


def never_killed(place: Place, part: float | str, jobs: tuple[Job, ...], report: int) -> None:
    for job in jobs:
        job(place)
    with os.fdopen(report, "w", encoding="utf-8") as file:
        json.dump(tables_of(Lake.open(place.lake), part), file)


def warm_up(log: LogAddress) -> None:
    """Bring compiled code in, which every child would otherwise do anew."""
    for group in reading.plan_readers(log, log.describe().ranges):
        for piece, found in log.fetch(group.slices):
            reading.decode(piece, found)


def kill_at_each_write(name: str, folder: Path, number: int) -> None:
    scenario = SCENARIOS[name]
    base, killed, place = (Place(folder / name) for name in ("base", "killed", "place"))

    def recover(_report: int) -> None:
        for recovery in scenario.recoveries:
            shutil.rmtree(place.folder, ignore_errors=True)
            shutil.copytree(killed.folder, place.folder)
            recovery.run(place)
            check(place, recovery.part)

    # A lake goes on with its log in the same place, so every run is in the same.
    must(lambda _: scenario.prepare(place))
    place.folder.rename(base.folder)

    def run(at: int) -> tuple[str, bool]:
        shutil.copytree(base.folder, place.folder)
        return forked(lambda report: (Kill(at, report), scenario.killed(place)))

    for at in sample(run(0)[0].splitlines(), number) if number else count(1):
        shutil.rmtree(place.folder, ignore_errors=True)
        write, was_killed = run(at)
        place.folder.rename(killed.folder)
        tell(name, write, forked(recover)[0] if was_killed or not write else write)
        shutil.rmtree(killed.folder)
        if not was_killed:
            return


def sample(writes: list[str], number: int) -> list[int]:
    """Return at which writes to kill: at up to `number` of each kind, and behind the last of all."""
    chosen = {len(writes) + 1}
    for kind in {*writes}:
        places = [at for at, write in enumerate(writes, 1) if write == kind]
        chosen |= {places[len(places) * each // number] for each in range(number)}
    return sorted(chosen)


def kill_again_and_again(folder: Path) -> None:
    """On one lake: the first run is killed at its first write, the next at its second, until one lives."""
    place = Place(folder / "place")
    place.write_log(PARTS[1])
    at, killed = 0, True
    while killed:
        at += 1
        write, killed = forked(lambda report: (Kill(at, report), run_again(place)))  # noqa: B023 - runs at once
        problem = write if write and not killed else "" if killed else forked(lambda _: check(place, PARTS[1]))[0]
        tell(AGAIN_AND_AGAIN, write, problem)


def tell(scenario: str, at: str, problem: str) -> None:
    sys.stdout.write(json.dumps({"scenario": scenario, "at": at, "problem": problem}) + "\n")


def main(folder: Path, scenarios: Iterable[tuple[str, int]]) -> None:
    log_writer.now_ms = lambda: NOW  # type: ignore[attr-defined]  # the same log, whenever it is written
    appender.FileIO = LogFile  # type: ignore[misc]
    for part in PARTS:
        place = Place(folder / f"expected-{part}")
        place.write_log(part)
        EXPECTED[part] = json.loads(must(partial(never_killed, place, part, (run_again,))))
    for done, jobs in NEVER_KILLED.items():
        EXPECTED[done] = json.loads(must(partial(never_killed, Place(folder / f"expected-{done}"), done, jobs)))
    warm_up(LogAddress(folder=place.folder / "log"))
    gc.collect()
    gc.freeze()  # or a collection in a child copies all pages of its parent
    for scenario, number in scenarios:
        if scenario == AGAIN_AND_AGAIN:
            kill_again_and_again(folder / scenario)
        else:
            kill_at_each_write(scenario, folder / scenario, number)


def asked(argument: str) -> tuple[str, int]:
    scenario, _, number = argument.partition("=")
    return scenario, int(number or 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), map(asked, sys.argv[2:]))
