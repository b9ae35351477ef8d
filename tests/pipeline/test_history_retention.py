"""History that was dropped: the answers since are those of a lake that has kept everything."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from offsetlake.errors import BadRequest
from offsetlake.lake import runs, upkeep
from offsetlake.lake.definitions import HISTORY, STATE, TABLES
from offsetlake.lake.foreign.guard import findings, refuse_changed
from offsetlake.lake.history.history_cuts import last_cut
from offsetlake.lake.lake import Lake
from offsetlake.lake.upkeep import VacuumRetention
from offsetlake.pipeline.checks.expectations import evidence, pinned, read_suites
from offsetlake.pipeline.compact.rebuild import rebuild
from offsetlake.pipeline.maintain import history_retention
from offsetlake.pipeline.maintain.forget import forget
from offsetlake.pipeline.maintain.job import maintain, preview
from offsetlake.queries.history.as_of import groups_as_of, offsets_as_of
from offsetlake.queries.history.diff import diff
from offsetlake.rules.policy import Keep, RetentionPolicy
from offsetlake.util.times import to_ms
from offsetlake.web.report.report import report
from support.command_line import Run
from support.e2e.delta_files import files
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, rows, state
from support.lakes import new_lake
from support.oracle.random_logs import RandomLog, random_log
from support.queries.lakes import Row, commit, marker, small_lake, tombstone
from support.queries.runs_of_history import finished_at, lake_in_runs, runs_of
from support.rules.group_records import classic

FIXTURES = Path(__file__).parents[1] / "fixtures"
NOTHING_KEPT = Keep(history_ms=0)


def quiet(_text: str) -> None:
    pass


def drop_before(lake: Lake, now: int, keep: Keep = NOTHING_KEPT) -> runs.FinishedRun:
    return maintain(lake, None, VacuumRetention(7 * 86_400_000, 7 * 86_400_000), quiet, keep, now)


def after_run(run_id: int) -> int:
    """Return the instant just after the compaction of an ingest run of `lake_in_runs`."""
    return finished_at(run_id) + 1


def begins(lake: Lake) -> int:
    cut = last_cut(lake, "history")
    assert cut is not None
    assert cut.begins_timestamp is not None
    return cut.begins_timestamp


def instants(lake: Lake, since: int) -> list[int]:
    times = {row["log_timestamp"] for table in HISTORY[:3] for row in rows(lake, table)} - {None}
    later = sorted(time for time in times if time > since)
    return [since, since + 1, *later[:: max(1, len(later) // 8)]]


def answers(lake: Lake, times: list[int]) -> Iterator[Any]:
    for time in times:
        yield offsets_as_of(lake, time).to_pylist()
        yield groups_as_of(lake, time).to_pylist()
    yield diff(lake, times[0], times[-1]).to_pylist()


def steps_of(lake: Lake, after: int) -> list[Row]:
    """Return the steps of offsets that records after an ingest run made; the step before them may be dropped."""
    sql = (
        "SELECT commit_steps.* FROM commit_steps JOIN offset_commits AS records ON "
        "records.log_partition = commit_steps.log_partition AND records.log_offset = commit_steps.log_offset "
        f"WHERE records.ingest_run > {after}"
    )
    found = lake.query(sql, "commit_steps", "offset_commits").drop_columns(["old_log_offset"]).to_pylist()
    return sorted(found, key=repr)


def random_runs(folder: Path, seed: int) -> Lake:
    rng = random.Random(seed)
    in_parts = (7,) if seed % 2 else ()
    log = random_log(rng, 220, groups=4, topics=2, log_partitions=2, records_per_batch=4, commit_ids=in_parts)
    cuts = sorted(rng.sample(range(len(log.plans) // 4, len(log.plans)), 3))
    return lake_in_runs(folder, log, [*cuts, len(log.plans)], _group_records(log, rng))


def _group_records(log: RandomLog, rng: random.Random) -> dict[str, list[Row]]:
    """Return group records of the groups of a log, each at the log offset of another record."""
    partition_of = {group: number for number, groups in log.world.placement.items() for group in groups}
    places = [each for each in log.records() if each.log_timestamp >= 0]
    made = []
    for place in sorted(rng.sample(places, 40), key=lambda each: each.log_offset):
        group = rng.choice([name for name, number in partition_of.items() if number == place.log_partition])
        value = None if rng.random() < 0.4 else {**classic(generation=place.log_offset), "protocol": None}
        made.append(
            {
                "log_partition": place.log_partition, "log_offset": place.log_offset,
                "log_timestamp": place.log_timestamp, "group_id": group, "kind": "value" if value else "tombstone",
                "record_type": 2, "record_name": "GroupMetadata", "key": json.dumps({"group": group}),
                "value": json.dumps(value) if value else None,
            }
        )  # fmt: skip
    return {"group_records": made}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("compacts", [False, True])
def test_answers_since_the_cut_are_those_of_the_whole_history(
    seed: int, compacts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """History is cut twice; with `compacts`, all files have been compacted into one, which is rewritten."""
    if compacts:
        monkeypatch.setattr(upkeep, "MIN_SMALL_FILES", 2)
    monkeypatch.setattr(history_retention, "_ROWS_AT_ONCE", 100)  # so that one log partition is read at a time
    whole = random_runs(tmp_path / "whole", seed)
    lake = Lake.open(shutil.copytree(whole.location.path, tmp_path / "cut"))
    if compacts:
        drop_before(lake, 0)
    for run_id in (1, 5):
        counts = drop_before(lake, after_run(run_id)).counts
        assert lake.count("offset_commits") < whole.count("offset_commits")
        times = instants(whole, begins(lake))
        for expected, found in zip(answers(whole, times), answers(lake, times), strict=True):
            assert found == expected
        assert steps_of(lake, run_id) == steps_of(whole, run_id)
        left = {table: rows(lake, table) for table in HISTORY}
        assert counts["history_rows_dropped"] > 0
        assert drop_before(lake, after_run(run_id)).counts["history_rows_dropped"] == 0
        assert {table: rows(lake, table) for table in HISTORY} == left
    refuse_changed(lake)
    for table in HISTORY:
        assert lake.delta_table(table).metadata().configuration["delta.appendOnly"] == "true"


@pytest.mark.long
def test_baseline_of_a_baseline_is_the_same(tmp_path: Path) -> None:
    """So a run that was killed between the commits of two tables computes the same rows again."""
    lake = random_runs(tmp_path / "lake", 3)
    for run_id in (1, 5):
        drop_before(lake, after_run(run_id))
        pieces = list(history_retention._baseline(lake, run_id, 0))
        for table in ("offset_commits", "transaction_markers", "group_records"):
            found = [row for piece in pieces for row in piece[table].to_pylist()]
            expected = [row for row in rows(lake, table) if row["ingest_run"] <= run_id]
            assert sorted(map(repr, found)) == sorted(map(repr, expected)), table


def test_only_what_decides_the_state_remains(tmp_path: Path) -> None:
    kept = [
        commit(2, 20),  # the newest of its key
        commit(4, 5, 7, topic="open"),  # its transaction is open
        commit(5, 6, 8, topic="ended"),  # with its marker
        commit(11, 1, group_id="deleted", topic="first"),  # creates the group, and was deleted by
        tombstone(12, group_id="deleted", topic="first"),
    ]
    dropped = [
        commit(1, 10),
        commit(3, 9, 9, topic="aborted"),
        commit(8, 1, topic="deleted"),
        tombstone(9, topic="deleted"),
        commit(10, 0, group_id="deleted", topic="first"),
    ]
    markers = [marker(6, "COMMIT", 8), marker(7, "ABORT", 9)]
    lake = small_lake(tmp_path / "lake", offset_commits=[*kept, *dropped], transaction_markers=markers, runs=runs_of(1))
    row = drop_before(lake, after_run(1))
    assert sorted(row["log_offset"] for row in rows(lake, "offset_commits")) == [2, 4, 5, 11, 12]
    assert (row.counts["history_rows_dropped"], row.outcome) == (5, "done")
    assert lake.count("transaction_markers") == 2, "markers are dropped by the next cut"
    small_lake(lake.location.path, offset_commits=[commit(20, 30, ingest_run=3)], runs=runs_of(3))
    drop_before(lake, after_run(3))
    assert [row["log_offset"] for row in rows(lake, "transaction_markers")] == [6]
    assert sorted(row["log_offset"] for row in rows(lake, "offset_commits")) == [4, 5, 11, 12, 20]


def test_whole_files_are_dropped_and_others_are_rewritten_once(tmp_path: Path) -> None:
    """The cost of a cut does not depend on the history that is kept: files of newer runs are not touched."""
    lake = small_lake(tmp_path / "lake", offset_commits=[commit(1, 1), commit(2, 2)], runs=runs_of(1))
    for run_id in (3, 5):
        compared = {"ingest_run": run_id, "routine": False}
        new = [commit(10 * run_id, run_id, **compared), commit(10 * run_id + 1, run_id, **compared)]
        small_lake(lake.location.path, offset_commits=new, runs=runs_of(run_id))
    before = {file["path"] for file in files(lake, "offset_commits")}
    drop_before(lake, after_run(1))
    after = {file["path"] for file in files(lake, "offset_commits")}
    assert (len(before), len(after & before), len(after)) == (3, 2, 3)


def test_runs_with_young_records_or_without_compaction_are_kept(tmp_path: Path) -> None:
    now = finished_at(9)
    lake = small_lake(
        tmp_path / "lake",
        offset_commits=[
            commit(1, 1), commit(2, 2),
            commit(3, 3, ingest_run=3), commit(4, 4, ingest_run=3, log_timestamp=now),
            commit(5, 5, ingest_run=5),
        ],
        runs=[*runs_of(1), *runs_of(3), *runs_of(5)],
    )  # fmt: skip
    assert preview(lake, None, VacuumRetention(0, 0), NOTHING_KEPT).dropped.history_through == 5, (
        "the clock is at the current time"
    )
    drop_before(lake, now)
    cut = last_cut(lake, "history")
    assert cut is not None
    assert (cut.through_run, cut.begins_timestamp) == (1, 2)
    other = small_lake(tmp_path / "other", offset_commits=[commit(1, 1), commit(2, 2)], runs=runs_of(1)[:1])
    assert drop_before(other, now).counts["history_rows_dropped"] == 0, "it is not compacted yet"


@pytest.mark.parametrize("wrong", [to_ms("2099-01-01"), 1000 * finished_at(9), 2**63 - 1])
def test_record_of_the_future_is_as_old_as_its_run(tmp_path: Path, wrong: int) -> None:
    commits = [commit(1, 1), commit(2, 2), commit(3, 3, log_timestamp=wrong), commit(4, 4, topic="other")]
    lake = small_lake(tmp_path / "lake", offset_commits=commits, runs=runs_of(1))
    assert drop_before(lake, after_run(1)).counts["history_rows_dropped"] == 2
    assert begins(lake) == 4
    assert sorted(row["log_offset"] for row in rows(lake, "offset_commits")) == [3, 4]


def test_records_without_timestamps_are_as_old_as_their_run(tmp_path: Path) -> None:
    commits = [commit(1, 1, log_timestamp=None), commit(2, 2, log_timestamp=None)]
    lake = small_lake(tmp_path / "lake", offset_commits=commits, runs=runs_of(1))
    assert drop_before(lake, finished_at(1)).counts["history_rows_dropped"] == 0
    assert drop_before(lake, finished_at(1) + 1).counts["history_rows_dropped"] == 1
    cut = last_cut(lake, "history")
    assert cut is not None
    assert cut.begins_timestamp is None


@pytest.fixture(scope="module")
def read_in_two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with every type of record, whose last run has read half of a random log."""
    folder = tmp_path_factory.mktemp("two-runs")
    log = random_log(random.Random(31), 400, groups=8, log_partitions=2, commit_ids=(7,))
    lake = new_lake(folder / "lake")
    for name, plans in (("half", log.plans[: len(log.plans) // 2]), ("log", log.plans)):
        RandomLog(log.world, plans).write(folder / name)
        for stored, shift in (("real-log", 100), ("every-record-type", 200)):
            for partition in (FIXTURES / stored).iterdir():
                topic, _, number = partition.name.rpartition("-")
                shutil.copytree(partition, folder / name / f"{topic}-{int(number) + shift}")
        cycle(InProcess(), lake, folder / name)
    return lake.location.path


@pytest.fixture
def lake(read_in_two_runs: Path, tmp_path: Path) -> Lake:
    return Lake.open(Path(shutil.copytree(read_in_two_runs, tmp_path / "lake")))


def finished(lake: Lake, run_id: int) -> int:
    (run,) = [row for row in rows(lake, "runs") if row["run_id"] == run_id]
    return int(run["finished_at"]) + 1


@pytest.mark.long
@pytest.mark.parametrize("run_id", [1, 3])
def test_lake_is_checked_and_rebuilt_from_what_remains(lake: Lake, run_id: int) -> None:
    before = {table: rows(lake, table) for table in STATE}
    whole = {table: lake.count(table) for table in HISTORY}
    violated = violations(lake)
    drop_before(lake, finished(lake, run_id))
    assert lake.count("offset_commits") < whole["offset_commits"]
    assert lake.count("share_state_records") <= whole["share_state_records"]
    assert lake.count("audit_events") == whole["audit_events"]
    assert violations(lake) == violated
    rebuild(InProcess, lake, quiet)  # type: ignore[arg-type]
    assert {table: rows(lake, table) for table in STATE} == before


def violations(lake: Lake) -> list[Any]:
    """Return the rows that violate any expectation about the whole lake: the log has values out of bounds."""
    suites = read_suites(())
    pins = pinned(lake, suites, {})
    return [sorted(found.rows, key=str) for suite in suites for found in evidence(lake, suite, pins, 0) if found.rows]


@pytest.mark.long
def test_next_cycle_continues_from_a_cut_lake(lake: Lake, read_in_two_runs: Path) -> None:
    whole = Lake.open(Path(shutil.copytree(lake.location.path, lake.location.path.parent / "whole")))
    drop_before(lake, finished(lake, 3))
    log = Path(shutil.copytree(read_in_two_runs.parent / "log", lake.location.path.parent / "log"))
    more = random_log(random.Random(31), 600, groups=8, log_partitions=2, commit_ids=(7,))
    more.write(log)
    for each in (whole, lake):
        each.files.write("verified.json", {})
        cycle(InProcess(), each, log)
    assert {table: state(lake)[table] for table in STATE} == {table: state(whole)[table] for table in STATE}
    assert violations(lake) == violations(whole)


@pytest.mark.long
def test_history_in_an_object_store_is_dropped_alike(bucket: str, tmp_path: Path) -> None:
    log = random_log(random.Random(5), 200, groups=4, log_partitions=2)
    folder, store = new_lake(tmp_path / "lake"), Lake.create(f"s3://{bucket}/lake")
    for name, plans in (("half", log.plans[: len(log.plans) // 2]), ("whole", log.plans)):
        RandomLog(log.world, plans).write(tmp_path / name / "log")
        for each in (folder, store):
            cycle(InProcess(), each, tmp_path / name / "log")
    for each in (folder, store):
        row = drop_before(each, finished(each, 1), Keep(history_ms=0, audit_events_ms=0))
        assert row.counts["history_rows_dropped"] > 0
        forget(each, "User:3", quiet)
    for table in HISTORY:
        assert rows(store, table) == rows(folder, table), table


def interrupted_after(monkeypatch: pytest.MonkeyPatch, name: str, calls: int) -> Callable[[], None]:
    """Make a function of `history_retention` fail after some calls; return a function that ends this."""
    real, made = getattr(history_retention, name), []

    def failing(*arguments: Any) -> Any:
        if len(made) == calls:
            raise KeyboardInterrupt
        made.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(history_retention, name, failing)
    return lambda: monkeypatch.setattr(history_retention, name, real)


@pytest.mark.long
@pytest.mark.parametrize("calls", range(5))
def test_interrupted_cut_is_completed_as_planned(lake: Lake, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted before any of its commits: in between, answers are the same, and the planned limits apply."""
    other = Lake.open(Path(shutil.copytree(lake.location.path, lake.location.path.parent / "other")))
    whole = Lake.open(Path(shutil.copytree(lake.location.path, lake.location.path.parent / "whole")))
    now = finished(lake, 1)
    drop_before(other, now)
    resume = interrupted_after(monkeypatch, "replace_files", calls)
    with pytest.raises(KeyboardInterrupt):
        drop_before(lake, now)
    resume()
    times = instants(whole, begins(lake))
    assert list(answers(lake, times)) == list(answers(whole, times))
    row = drop_before(lake, now + 86_400_000, Keep())
    assert row.resumed
    assert {table: rows(lake, table) for table in HISTORY} == {table: rows(other, table) for table in HISTORY}
    assert len(rows(lake, "history_cuts")) == 1
    refuse_changed(lake)
    assert not [table for table, of_table in findings(lake).items() if of_table.changed]


@pytest.mark.long
def test_questions_say_where_history_begins(lake: Lake, run: Run) -> None:
    drop_before(lake, finished(lake, 1))
    since = begins(lake)
    with pytest.raises(BadRequest, match="`offsetlake maintain` has dropped the history before"):
        offsets_as_of(lake, since - 1)
    where = ("--lake", str(lake.location.path), "--format", "json")
    code, out, error = run("offsets", "--as-of", str(since - 1), *where)
    assert (code, out) == (2, "")
    assert "error: history begins at " in error
    assert run("offsets", "--as-of", str(since), *where)[0] == 0
    for command in (
        ("audit", "commit_steps"),
        ("sql", "SELECT count(*) AS n FROM offset_commits"),
        ("check", "--full"),
    ):
        _, _, error = run(*command, "--lake", str(lake.location.path))
        assert "History begins at " in error, command
    assert "History begins" not in run("sql", "SELECT count(*) AS n FROM runs", *where)[2]


def test_report_says_where_history_begins(tmp_path: Path) -> None:
    lake = small_lake(tmp_path / "lake", offset_commits=[commit(1, 1), commit(2, 2)], runs=runs_of(1))
    drop_before(lake, after_run(1))
    page = report(lake, RetentionPolicy(0), None, None, quiet).page
    assert "History begins at 1970-01-01T00:00:00.002Z: of the records before" in page


EVENTS = [
    {"log_offset": offset, "last_log_offset": offset, "log_timestamp": 1_000 * offset, "address": f"10.0.0.{offset}:5"}
    for offset in range(1, 7)
]


def test_no_audit_event_older_than_its_limit_remains(tmp_path: Path, run: Run) -> None:
    lake = small_lake(tmp_path / "lake", audit_events=EVENTS[:3], offset_commits=[commit(1, 1)], runs=runs_of(1))
    small_lake(lake.location.path, audit_events=[{**event, "ingest_run": 3} for event in EVENTS[3:]])
    row = drop_before(lake, 10_000, Keep(audit_events_ms=5_000))
    assert [row["log_offset"] for row in rows(lake, "audit_events")] == [5, 6]
    assert row.counts["audit_events_dropped"] == 4
    assert lake.count("offset_commits") == 1
    cut = last_cut(lake, "audit_events")
    assert cut is not None
    assert (cut.through_run, cut.begins_timestamp) == (3, 5_000)
    assert drop_before(lake, 10_000, Keep(audit_events_ms=5_000)).outcome == "nothing new"
    assert "Audit events begin at 1970-01-01T00:00:05.000Z" in run("audit-events", "--lake", str(lake.location.path))[2]
    assert last_cut(lake, "history") is None


def test_settings_and_dry_run(tmp_path: Path, run: Run) -> None:
    lake = small_lake(
        tmp_path / "lake", audit_events=EVENTS, offset_commits=[commit(1, 1), commit(2, 2)], runs=runs_of(1)
    )
    (tmp_path / "settings.toml").write_text('[history]\nkeep = "400d"\n[audit_events]\nkeep = "90d"\n')
    where = ("--lake", str(lake.location.path), "--config", str(tmp_path / "settings.toml"))
    _, out, _ = run("maintain", "--dry-run", *where)
    assert "The history of ingest runs up to 1 would be dropped, and history would begin at 1970-" in out
    assert "Audit events before 20" in out
    assert lake.count("audit_events") == 6
    _, out, _ = run("maintain", *where)
    assert "Dropped 1 row of history that is older than the settings allow" in out
    assert "Dropped 6 audit events that are older than the settings allow" in out
    assert (lake.count("audit_events"), lake.count("offset_commits")) == (0, 1)
    assert {*TABLES} == {*lake.tables()}
