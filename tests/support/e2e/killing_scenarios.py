"""The scenarios of `e2e.killing`: the state before, the job that is killed, the recoveries and the expected result."""

import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from offsetlake.lake import upkeep as table_upkeep
from offsetlake.lake.definitions import HISTORY, STATE
from offsetlake.lake.files import commit
from offsetlake.lake.foreign.guard import refuse_changed
from offsetlake.lake.lake import Lake
from offsetlake.lake.upkeep import VacuumRetention
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.changes import execute as changes
from offsetlake.pipeline.changes.reset import Reset, reset
from offsetlake.pipeline.compact import job as compact_job
from offsetlake.pipeline.compact.job import compact
from offsetlake.pipeline.compact.rebuild import rebuild
from offsetlake.pipeline.emit.decisions import DECIDED
from offsetlake.pipeline.emit.job import emit
from offsetlake.pipeline.ingest.job import ingest
from offsetlake.pipeline.maintain.forget import forget
from offsetlake.pipeline.maintain.job import maintain, preview
from offsetlake.rules.policy import Keep
from offsetlake.rules.strategies import to_offset
from support.e2e.divided import divided
from support.e2e.in_process import InProcess
from support.e2e.lakes import grow, plan_expiry, rows, state, upkeep
from support.lakes_without_steps import forget_steps
from support.oracle.random_logs import RandomLog, random_log

NOW = 1_800_000_000_000  # ms: the time of everything that is written
PARTS = (0.4, 0.76, 0.99)  # of the growing log; the later two end in a batch that a run verifies by its checksum

EVALUATED, EMITTED, BY_HAND, DROPPED, FORGOTTEN = "evaluated", "emitted", "by hand", "dropped", "forgotten"
_OURS = ("appendOnly", "checkConstraints", "invariants")
PRINCIPAL = "User:0"  # wrote the first batch
RESET = "group-5"  # has neither members nor open transactions

# The tables of a lake whose jobs were never killed, by part of the log or by key of NEVER_KILLED.
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

    def compact_divided(self) -> None:
        with divided():
            self.compact()

    def expire(self) -> None:
        plan_expiry(InProcess(), self.create())

    def maintain(self) -> None:
        table_upkeep.MIN_SMALL_FILES = 2  # so that every table is compacted
        upkeep(self.create(), self.folder / "log")

    def drop(self) -> None:
        """Drop what the first ingest has read; a resumed run does not depend on the limits."""
        lake = self.create()
        first = min(row["finished_at"] for row in rows(lake, "runs") if row["job"] == "ingest")
        maintain(lake, None, VacuumRetention(0, 0), lambda _: None, Keep(history_ms=0, audit_events_ms=0), first + 1)

    def compare(self) -> None:
        """Compare the commits that an older version ingested."""
        upkeep(self.create())

    def forget(self) -> None:
        forget(self.create(), PRINCIPAL, lambda _: None)

    def rebuild(self) -> None:
        rebuild(InProcess, self.create(), lambda _: None)  # type: ignore[arg-type]

    def rebuild_one_log_partition(self) -> None:
        rebuild(InProcess, self.create(), lambda _: None, STATE, 1)  # type: ignore[arg-type]

    def emit(self) -> None:
        emit(self.create(), LogAddress(folder=self.folder / "log"), lambda _: None)

    def reset(self) -> None:
        lake, log = self.create(), LogAddress(folder=self.folder / "log")
        request = Reset(RESET, "to_offset", lambda offsets: to_offset(offsets, 1), {})
        make = lambda: reset(lake, request, None, NOW).drop_columns(["note"])  # noqa: E731
        changes.execute(lake, log, "reset", "alterations", make, lambda _: None)


@cache
def whole_log() -> RandomLog:
    log = random_log(random.Random(7), 300, groups=8, log_partitions=2)
    return RandomLog(
        log.world, tuple(replace(plan, opens_segment=index % 24 < 2) for index, plan in enumerate(log.plans))
    )


def _log_only(place: Place) -> None:
    place.write_log(PARTS[1])


def _compacted_once(place: Place) -> None:
    place.write_log(PARTS[0])
    place.ingest()
    place.compact()
    place.write_log(PARTS[1])


def _compacted_again(place: Place) -> None:
    _compacted_once(place)
    run_again(place)


def _ingested_again(place: Place) -> None:
    _compacted_once(place)
    place.ingest()


def run_again(place: Place) -> None:
    place.ingest()
    place.compact()


def _run_again_with_more_log(place: Place) -> None:
    place.write_log(PARTS[2])
    for job in (place.ingest, place.compact):
        job()  # the resumed run
        job()  # the records added since


def _compact_alone_first(place: Place) -> None:
    place.compact()
    actual = plain(state(Lake.open(place.lake)))
    states = (actual, EXPECTED[PARTS[0]], EXPECTED[PARTS[1]])
    compacted = [{table: tables[table] for table in STATE} for tables in states]
    assert compacted[0] in compacted[1:], "an incomplete ingest was compacted"
    run_again(place)


def _expired_once(place: Place) -> None:
    """The retention rules were applied to a shorter log, so some decisions exist already."""
    _compacted_once(place)
    place.expire()
    run_again(place)


def _evaluated_twice(place: Place) -> None:
    _expired_once(place)
    place.expire()


def _maintain_again(place: Place) -> None:
    place.maintain()
    remaining = preview(Lake.open(place.lake), place.folder / "log", VacuumRetention(0, 0))
    assert not [planned for planned in remaining.cuts if planned.cut.obsolete]
    tables = [table for table in remaining.compacted if remaining.compacted[table] or remaining.removed[table]]
    assert tables in ([], ["runs"])


def _drop_again(place: Place) -> None:
    place.drop()
    for table, of_table in refuse_changed(Lake.open(place.lake)).items():
        assert of_table.readable == of_table.version, table
    cuts = [cut for cut in rows(Lake.open(place.lake), "history_cuts") if cut["scope"] == "history"]
    assert [cut["through_run"] for cut in cuts] == [1]


def _without_steps(place: Place) -> None:
    _compacted_again(place)
    forget_steps(Lake.open(place.lake))


def _compare_again(place: Place) -> None:
    place.compare()
    lake = Lake.open(place.lake)
    refuse_changed(lake)
    assert lake.count("offset_commits", "routine IS NULL") == 0
    assert lake.without_rows("offset_commits").metadata().configuration["delta.appendOnly"] == "true"


def _go_on_and_compare(place: Place) -> None:
    place.write_log(PARTS[2])
    run_again(place)
    _compare_again(place)


def _forget_again(place: Place) -> None:
    place.forget()
    lake = Lake.open(place.lake)
    refuse_changed(lake)
    for file in lake.table_location("audit_events").path.rglob("*.json"):
        assert PRINCIPAL not in file.read_text(encoding="utf-8")


def _go_on_and_maintain(place: Place) -> None:
    place.write_log(PARTS[2])
    run_again(place)
    place.maintain()


def _changed_by_others(place: Place) -> None:
    """Another program deleted rows of two tables and added a table feature that deltalake cannot write."""
    _compacted_again(place)
    lake = Lake.open(place.lake)
    for table in ("offsets", "groups"):
        assert lake.delta_table(table).delete("log_partition = 1")["num_deleted_rows"]
    log = lake.table_location("offsets").path / "_delta_log"
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [*_OURS, "inCommitTimestamp"]}
    version = lake.versions("offsets")["offsets"] + 1
    (log / f"{version:020}.json").write_text(json.dumps({"protocol": protocol}))


def _compacted_half(place: Place) -> None:
    """A compaction was killed after it had committed `offsets`; then another program deleted rows of two tables."""
    _ingested_again(place)
    lake = place.create()
    once = partial(commit_of_compact, {"offsets"})
    with patch.object(compact_job, "commit", once), suppress(InterruptedError):
        place.compact()
    for table in ("offsets", "groups"):
        assert lake.delta_table(table).delete("log_partition = 1")["num_deleted_rows"]


def commit_of_compact(tables: set[str], lake: Lake, table: str, *changes: Any) -> None:
    if table not in tables:
        raise InterruptedError
    commit(lake, table, *changes)


def _rebuild_again(place: Place) -> None:
    """Readers and jobs refuse the changed tables until they are rebuilt."""
    place.rebuild()
    refuse_changed(Lake.open(place.lake))
    run_again(place)


def _rebuild_with_more_log(place: Place) -> None:
    place.rebuild()
    _run_again_with_more_log(place)


def _evaluated_with_more_log(place: Place) -> None:
    """The plan was evaluated on a shorter log, so some of its tombstones are superseded."""
    _evaluated_twice(place)
    place.write_log(PARTS[2])


def _emitted_again(place: Place) -> None:
    place.emit()
    run_again(place)
    place.expire()
    place.emit()
    run_again(place)


def _reset_again(place: Place) -> None:
    """An emit writes the planned alterations, if any; the same reset then finds them written, or writes them."""
    place.emit()
    place.reset()
    run_again(place)


@dataclass(frozen=True)
class Recovery:
    """The jobs to run after the kill, and the key in EXPECTED of the resulting lake."""

    run: Job
    part: float | str


@dataclass(frozen=True)
class Scenario:
    """The preparation, the job that is killed, and the recoveries."""

    prepare: Job
    killed: Job
    recoveries: tuple[Recovery, ...]


SCENARIOS = {
    "create": Scenario(_log_only, Place.create, (Recovery(run_again, PARTS[1]),)),
    "ingest": Scenario(
        _compacted_once,
        Place.ingest,
        (
            Recovery(run_again, PARTS[1]),
            Recovery(_compact_alone_first, PARTS[1]),
            Recovery(_run_again_with_more_log, PARTS[2]),
        ),
    ),
    "compact": Scenario(
        _ingested_again,
        Place.compact,
        (Recovery(Place.compact, PARTS[1]), Recovery(_run_again_with_more_log, PARTS[2])),
    ),
    "compact by ranges of groups": Scenario(
        _ingested_again,
        Place.compact_divided,
        (Recovery(Place.compact_divided, PARTS[1]), Recovery(_run_again_with_more_log, PARTS[2])),
    ),
    "expire": Scenario(_expired_once, Place.expire, (Recovery(Place.expire, EVALUATED),)),
    "maintain": Scenario(
        _compacted_again,
        Place.maintain,
        (Recovery(_maintain_again, PARTS[1]), Recovery(_go_on_and_maintain, PARTS[2])),
    ),
    "drop history": Scenario(_compacted_again, Place.drop, (Recovery(_drop_again, DROPPED),)),
    "compare commits": Scenario(
        _without_steps,
        Place.compare,
        (Recovery(_compare_again, PARTS[1]), Recovery(_go_on_and_compare, PARTS[2])),
    ),
    "forget": Scenario(_compacted_again, Place.forget, (Recovery(_forget_again, FORGOTTEN),)),
    "rebuild": Scenario(
        _changed_by_others,
        Place.rebuild,
        (Recovery(_rebuild_again, PARTS[1]), Recovery(_rebuild_with_more_log, PARTS[2])),
    ),
    "rebuild of a log partition": Scenario(
        _compacted_half,
        Place.rebuild_one_log_partition,
        (Recovery(_rebuild_again, PARTS[1]), Recovery(_rebuild_with_more_log, PARTS[2])),
    ),
    "emit": Scenario(_evaluated_with_more_log, Place.emit, (Recovery(_emitted_again, EMITTED),)),
    "by hand": Scenario(_compacted_again, Place.reset, (Recovery(_reset_again, BY_HAND),)),
}
AFTER_EMIT = (EMITTED, BY_HAND)
NEVER_KILLED: dict[str, tuple[Job, ...]] = {
    EVALUATED: (_evaluated_twice,),
    EMITTED: (_evaluated_with_more_log, _emitted_again),
    BY_HAND: (_compacted_again, _reset_again),
    DROPPED: (_compacted_again, Place.drop),
    FORGOTTEN: (_compacted_again, Place.forget),
}
AGAIN_AND_AGAIN = "again and again"

KILLS = {
    "create": {"mkdir": 1, "create table": 1, "add constraint": 1},
    "ingest": {"fsync": 1, "link": 1, "close data file": 1, "commit": 2},
    "compact": {"fsync": 1, "close data file": 1, "replace": 1, "commit": 2},
    "compact by ranges of groups": {"close data file": 1, "fsync": 1, "commit": 1, "unlink": 1},
    "expire": {"open": 1, "fsync": 2, "link": 1, "replace": 1, "close data file": 2, "commit": 2, "unlink": 1},
    "maintain": {
        "close data file": 1,
        "commit": 1,
        "optimize": 1,
        "fsync": 1,
        "unlink": 1,
        "vacuum": 1,
        "checkpoint": 1,
    },
    "drop history": {"close data file": 1, "commit": 1, "set property": 1, "replace": 1, "vacuum": 1, "unlink": 1},
    "compare commits": {"close data file": 1, "commit": 1, "set property": 2, "replace": 1, "vacuum": 1},
    "forget": {"close data file": 1, "commit": 1, "set property": 1, "vacuum": 1, "checkpoint": 1, "unlink": 1},
    "rebuild": {"link": 1, "close data file": 1, "add constraint": 1, "commit": 1},
    "rebuild of a log partition": {"close data file": 1, "commit": 1},
    "emit": {"append": 2, "fdatasync": 1, "close data file": 1, "commit": 1},
    "by hand": {"close data file": 1, "replace": 1, "append": 1, "commit": 1},
}
"""The writes before which jobs are killed, by scenario: how many of each kind, at equal distances."""


def check(place: Place, part: float | str) -> None:
    """Check that the lake equals one whose jobs were never killed, and that its runs count every row exactly once."""
    lake = Lake.open(place.lake)
    assert tables_of(lake, part) == EXPECTED[part]
    for table, decision in DECIDED.items():
        check_outcomes(rows(lake, table), decision, part)
    runs = sorted(rows(lake, "runs"), key=lambda run: run["run_id"])
    assert len({run["run_id"] for run in runs}) == len(runs)
    ingests = [run for run in runs if run["job"] == "ingest"]
    assert not [run["gaps"] for run in ingests if run["gaps"]]
    dropped = max((cut["through_run"] for cut in rows(lake, "history_cuts")), default=0)
    for table in HISTORY:
        counted = {
            run["run_id"]: count for run in ingests if run["run_id"] > dropped and (count := dict(run["counts"])[table])
        }
        sql = f"SELECT ingest_run, count(*) AS n FROM {table} WHERE ingest_run > {dropped} GROUP BY ingest_run"
        assert {row["ingest_run"]: row["n"] for row in lake.query(sql, table).to_pylist()} == counted
    ends = LogAddress(folder=place.folder / "log").describe().ranges
    assert {(row["topic"], row["partition"]): row["position"] for row in ingests[-1]["positions"]} == {
        source: span.end for source, span in ends.items()
    }
    covered = max(run["through_run"] or 0 for run in runs)
    assert covered == max(run["run_id"] for run in ingests if run["outcome"] == "done")
    assert not [*lake.location.path.glob("plan-*")]


def tables_of(lake: Lake, part: float | str) -> dict[str, Any]:
    """Return all tables that do not depend on the kill.

    After a killed emit, the next one records `gone` for tombstones that are written already, so outcomes are checked by
    `check_outcomes` instead. After a killed reset, the next emit writes its plan, so the command of an audit event is
    not compared.
    """
    tables = state(lake) | {"audit_events": rows(lake, "audit_events", "ingest_run", "client_id")}
    return plain({table: rows for table, rows in tables.items() if part not in AFTER_EMIT or table not in DECIDED})


def check_outcomes(decisions: list[dict[str, Any]], decision: Sequence[str], part: float | str) -> None:
    """Check that a decision is emitted or `gone` at most once, and is no longer planned after an emit."""
    ends: dict[tuple[Any, ...], list[str]] = {}
    for row in sorted(decisions, key=lambda row: row["run_id"]):
        ends.setdefault(tuple(row[name] for name in decision), []).append(row["outcome"])
    for key, outcomes in ends.items():
        assert all("planned" in pair for pair in pairwise(outcomes)), (key, outcomes)
        assert outcomes.count("emitted") + outcomes.count("gone") <= 1, (key, outcomes)
        assert part not in AFTER_EMIT or outcomes[-1] != "planned", (key, outcomes)


def plain(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the tables as JSON values, which are equal if and only if the states are."""
    plain: dict[str, Any] = json.loads(json.dumps(tables, default=repr))
    return plain
