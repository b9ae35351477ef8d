"""A program that kills jobs: each in a forked child that ends itself by SIGKILL right before one of its writes.

    python -m e2e.killing SCENARIO FOLDER

One child is killed at its first write, the next at its second, and so on, until one lives to the end: right before a
write is right after the one before. Behind each, another child runs the jobs again, in every way of the scenario, and
compares the lake with one whose jobs were never killed. Prints a JSON object a kill: `at`, the write, empty where none
was left; `problem`, empty or what is wrong with the lake.

The parent has imported everything and never touches a Delta table: the threads that would start do not live in a fork.
"""

import io
import json
import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.table import TableAlterer, TableOptimizer

from e2e.in_process import InProcess
from e2e.lakes import grow, judge, rows, state, upkeep
from offsetlake.lake import upkeep as table_upkeep
from offsetlake.lake.lake import Lake
from offsetlake.log import source
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.compact import compact
from offsetlake.pipeline.compact_task import COMPACTED
from offsetlake.pipeline.ingest import ingest
from offsetlake.pipeline.maintain import preview
from offsetlake.pipeline.readers import HISTORY
from oracle.random_logs import RandomLog, random_log

WRITES: dict[str, tuple[Any, str]] = {
    "mkdir": (os, "mkdir"),
    "fsync": (os, "fsync"),
    "replace": (os, "replace"),
    "unlink": (os, "unlink"),
    "open": (io, "open"),
    "create table": (DeltaTable, "create"),
    "add constraint": (TableAlterer, "add_constraint"),
    "commit": (DeltaTable, "create_write_transaction"),
    "close data file": (pq.ParquetWriter, "close"),
    "optimize": (TableOptimizer, "compact"),
    "vacuum": (DeltaTable, "vacuum"),
    "checkpoint": (DeltaTable, "create_checkpoint"),
}
PARTS = (0.4, 0.76, 0.99)  # of the log, as it grows; the later two end in a batch that is known again by its checksum

JUDGED = "judged"

# By part of the log, the tables of a lake whose jobs were never killed; JUDGED: what `_judged_twice` leaves.
EXPECTED: dict[float | str, dict[str, Any]] = {}

Job = Callable[["Place"], object]


@dataclass(frozen=True)
class Place:
    """A folder with a log and the lake that reads it."""

    folder: Path

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def write_log(self, part: float) -> None:
        log = whole_log()
        grow(self.folder / "log", RandomLog(log.world, log.plans[: int(len(log.plans) * part)]))

    def create(self) -> Lake:
        return Lake.create(self.lake)

    def ingest(self) -> None:
        ingest(InProcess, self.create(), LogAddress(folder=self.folder / "log"), lambda _: None)  # type: ignore[arg-type]

    def compact(self) -> None:
        compact(InProcess, self.create(), lambda _: None)  # type: ignore[arg-type]

    def expire(self) -> None:
        judge(InProcess(), self.create())

    def maintain(self) -> None:
        table_upkeep.FEWEST = 2  # every table has something to do
        upkeep(self.create(), self.folder / "log")


@cache
def whole_log() -> RandomLog:
    log = random_log(random.Random(7), 300, groups=8, log_partitions=2)
    return RandomLog(log.world, tuple(replace(plan, opens_segment=at % 24 < 2) for at, plan in enumerate(log.plans)))


class Kill:
    """Counts the writes of this process and ends it right before the one of this number."""

    def __init__(self, at: int, report: int) -> None:
        self._left, self._report = at, report
        for name, (owner, function) in WRITES.items():
            setattr(owner, function, self._before(name, getattr(owner, function)))

    def _before(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **kwargs: Any) -> Any:
            reads = name == "open" and not {*args[1]} & {*"wax+"}  # how pathlib calls it: path, mode, …
            if not reads and not kwargs.get("dry_run"):
                self._left -= 1
                if self._left == 0:
                    os.write(self._report, name.encode())
                    os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return write


def _log_only(place: Place) -> None:
    place.write_log(PARTS[1])


def _compacted_once(place: Place) -> None:
    place.write_log(PARTS[0])
    place.ingest()
    place.compact()
    place.write_log(PARTS[1])


def _ingested_again(place: Place) -> None:
    _compacted_once(place)
    place.ingest()


def _run_again(place: Place) -> None:
    place.ingest()
    place.compact()


def _run_again_with_more_log(place: Place) -> None:
    place.write_log(PARTS[2])
    for job in (place.ingest, place.compact):
        job()  # what was cut short
        job()  # what came since


def _compact_alone_first(place: Place) -> None:
    place.compact()
    found = plain(state(Lake.open(place.lake)))
    compacted = [{table: of[table] for table in COMPACTED} for of in (found, EXPECTED[PARTS[0]], EXPECTED[PARTS[1]])]
    assert compacted[0] in compacted[1:], "a half-done ingest was compacted"
    _run_again(place)


def _expired_once(place: Place) -> None:
    """All was judged when there was less of it, so some decisions are there already."""
    _compacted_once(place)
    place.expire()
    _run_again(place)


def _judged_twice(place: Place) -> None:
    _expired_once(place)
    place.expire()


def _compacted_twice(place: Place) -> None:
    _ingested_again(place)
    place.compact()


def _maintain_again(place: Place) -> None:
    place.maintain()
    left = preview(Lake.open(place.lake), place.folder / "log", 0)
    assert not [each for each in left.cuts if each.cut.going]
    assert [table for table in left.compacted if left.compacted[table] or left.removed[table]] in ([], ["runs"])


def _go_on_and_maintain(place: Place) -> None:
    place.write_log(PARTS[2])
    _run_again(place)
    place.maintain()


@dataclass(frozen=True)
class Recovery:
    """What is done after the kill, and which of EXPECTED the lake is then."""

    run: Job
    part: float | str


@dataclass(frozen=True)
class Scenario:
    """What is there, the job that is killed, and the ways to go on."""

    prepare: Job
    killed: Job
    recoveries: tuple[Recovery, ...]


SCENARIOS = {
    "create": Scenario(_log_only, Place.create, (Recovery(_run_again, PARTS[1]),)),
    "ingest": Scenario(
        _compacted_once,
        Place.ingest,
        (
            Recovery(_run_again, PARTS[1]),
            Recovery(_compact_alone_first, PARTS[1]),
            Recovery(_run_again_with_more_log, PARTS[2]),
        ),
    ),
    "compact": Scenario(
        _ingested_again,
        Place.compact,
        (Recovery(Place.compact, PARTS[1]), Recovery(_run_again_with_more_log, PARTS[2])),
    ),
    "expire": Scenario(_expired_once, Place.expire, (Recovery(Place.expire, JUDGED),)),
    "maintain": Scenario(
        _compacted_twice,
        Place.maintain,
        (Recovery(_maintain_again, PARTS[1]), Recovery(_go_on_and_maintain, PARTS[2])),
    ),
}
AGAIN_AND_AGAIN = "again and again"


def check(place: Place, part: float | str) -> None:
    """Compare the lake with one whose jobs were never killed; its runs account for every row, once."""
    lake = Lake.open(place.lake)
    assert plain(state(lake)) == EXPECTED[part]
    runs = sorted(rows(lake, "runs"), key=lambda run: run["run_id"])
    assert len({run["run_id"] for run in runs}) == len(runs)
    ingests = [run for run in runs if run["job"] == "ingest"]
    assert not [run["gaps"] for run in ingests if run["gaps"]]
    for table in HISTORY:
        counted = {run["run_id"]: count for run in ingests if (count := dict(run["counts"])[table])}
        sql = f"SELECT ingest_run, count(*) AS n FROM {table} GROUP BY ingest_run"
        assert {row["ingest_run"]: row["n"] for row in lake.query(sql, table).to_pylist()} == counted
    ends = LogAddress(folder=place.folder / "log").describe().ranges
    assert {(at["topic"], at["partition"]): at["position"] for at in ingests[-1]["positions"]} == {
        where: held.end for where, held in ends.items()
    }
    covered = max(run["through_run"] or 0 for run in runs)
    assert covered == max(run["run_id"] for run in ingests if run["outcome"] == "done")
    assert not [*lake.path.glob("plan-*")]


def plain(tables: dict[str, Any]) -> dict[str, Any]:
    """The same for any two equal states, and fit to travel as JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(tables, default=repr))
    return plain


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


def never_killed(place: Place, jobs: Job, report: int) -> None:
    jobs(place)
    with os.fdopen(report, "w", encoding="utf-8") as file:
        json.dump(plain(state(Lake.open(place.lake))), file)


def warm_up(log: LogAddress) -> None:
    """Bring compiled code in, which every child would otherwise do anew."""
    for group in source.plan_readers(log, log.describe().ranges):
        for piece, found in log.fetch(group.slices):
            source.decode(piece, found)


def kill_at_each_write(scenario: Scenario, folder: Path) -> None:
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
    at, alive = 0, False
    while not alive:
        at += 1
        shutil.copytree(base.folder, place.folder)
        write, was_killed = forked(lambda report: (Kill(at, report), scenario.killed(place)))  # noqa: B023 - runs at once
        alive = not was_killed
        place.folder.rename(killed.folder)
        tell(write, forked(recover)[0] if was_killed or not write else write)
        shutil.rmtree(killed.folder)
        shutil.rmtree(place.folder)


def kill_again_and_again(folder: Path) -> None:
    """On one lake: the first run is killed at its first write, the next at its second, until one lives."""
    place = Place(folder / "place")
    place.write_log(PARTS[1])
    at, killed = 0, True
    while killed:
        at += 1
        write, killed = forked(lambda report: (Kill(at, report), _run_again(place)))  # noqa: B023 - runs at once
        tell(write, write if write and not killed else "" if killed else forked(lambda _: check(place, PARTS[1]))[0])


def tell(at: str, problem: str) -> None:
    sys.stdout.write(json.dumps({"at": at, "problem": problem}) + "\n")


def main(scenario: str, folder: Path) -> None:
    for part in PARTS:
        place = Place(folder / f"expected-{part}")
        place.write_log(part)
        EXPECTED[part] = json.loads(must(lambda report: never_killed(place, _run_again, report)))  # noqa: B023 - runs at once
    judged = Place(folder / "expected-judged")
    EXPECTED[JUDGED] = json.loads(must(lambda report: never_killed(judged, _judged_twice, report)))
    warm_up(LogAddress(folder=place.folder / "log"))
    if scenario == AGAIN_AND_AGAIN:
        kill_again_and_again(folder)
    else:
        kill_at_each_write(SCENARIOS[scenario], folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
