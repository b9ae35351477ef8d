"""Maintain on whole lakes: a log that is cut and tables that are compacted answer as if they were not."""

import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from offsetlake.errors import LakeBusy, LogBusy, LogMismatch
from offsetlake.kafka.records.coordinator_records import ShareStateRecordType, encode_key, encode_value
from offsetlake.lake import current_run, plans, runs
from offsetlake.lake import upkeep as table_upkeep
from offsetlake.lake.definitions import HISTORY, STATE, TABLES, definition
from offsetlake.lake.files import app_id
from offsetlake.lake.history.history_files import history_files
from offsetlake.lake.lake import Lake
from offsetlake.lake.upkeep import VacuumRetention
from offsetlake.log.address import LogAddress
from offsetlake.log.positions import SHARE_STATE_TOPIC
from offsetlake.pipeline.ingest.job import ingest
from offsetlake.pipeline.maintain.job import maintain, preview
from offsetlake.queries import questions
from offsetlake.queries.history.as_of import offsets_as_of
from offsetlake.rules.policy import Keep
from support.e2e.delta_files import contents, files, plain
from support.e2e.in_process import InProcess
from support.e2e.lakes import LATER, cycle, grow, plan_expiry, rows, state, upkeep
from support.lakes import new_lake
from support.log.made_folders import batch, write
from support.oracle.log_writer import Batch, Record, write_partition
from support.oracle.random_logs import RandomLog, logs, random_log

WEEK = 7 * 86_400_000
NO_RETENTION = VacuumRetention(0, 0)


@pytest.fixture(autouse=True)
def _few_files_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_upkeep, "MIN_SMALL_FILES", 2)


def _segments(log: Path) -> dict[str, list[int]]:
    return {
        path.name: sorted(int(segment.stem) for segment in path.glob("*.log"))
        for path in log.glob("*-*")
        if path.is_dir()
    }


def _bytes(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _assert_no_gap(lake: Lake) -> None:
    assert not [run for run in rows(lake, "runs") if run["gaps"]]


def _part(log: RandomLog, part: float) -> RandomLog:
    return RandomLog(log.world, log.plans[: int(len(log.plans) * part)])


def _random_log(seed: int = 7) -> RandomLog:
    return random_log(random.Random(seed), 300, groups=8, log_partitions=2, batches_per_segment=8)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log and a lake that has read it, in two cycles."""
    folder = tmp_path_factory.mktemp("maintain")
    _part(_random_log(), 0.4).write(folder / "first")
    _part(_random_log(), 0.7).write(folder / "log")
    lake = new_lake(folder / "lake")
    cycle(InProcess(), lake, folder / "first")
    cycle(InProcess(), lake, folder / "log")
    plan_expiry(InProcess(), lake)
    return folder


@pytest.fixture
def log(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "log", tmp_path / "log"))


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Lake:
    return Lake.open(Path(shutil.copytree(made / "lake", tmp_path / "lake")))


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(log=logs(max_batches=30), data=st.data())
def test_segments_deleted_between_runs_do_not_change_the_tables(log: RandomLog, data: st.DataObject) -> None:
    assume(log.plans)
    cuts = sorted(data.draw(st.lists(st.integers(1, len(log.plans)), max_size=3)))
    with TemporaryDirectory() as folder:
        whole, cut = new_lake(Path(folder) / "whole"), new_lake(Path(folder) / "cut")
        for plans in [*cuts, len(log.plans)]:
            grow(Path(folder) / "cut-log", RandomLog(log.world, log.plans[:plans]))
            if data.draw(st.booleans()):
                upkeep(cut, Path(folder) / "cut-log")
            cycle(InProcess(), cut, Path(folder) / "cut-log")
            upkeep(cut, Path(folder) / "cut-log")
        log.write(Path(folder) / "whole-log")
        cycle(InProcess(), whole, Path(folder) / "whole-log")
        assert state(cut) == state(whole)
        _assert_no_gap(cut)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 7])
def test_segments_of_a_long_log_are_deleted_in_several_runs(seed: int, tmp_path: Path) -> None:
    log, deleted = _random_log(seed), []
    whole, cut = new_lake(tmp_path / "whole"), new_lake(tmp_path / "cut")
    for part in (0.2, 0.4, 0.7, 1.0):
        grow(tmp_path / "cut-log", _part(log, part))
        cycle(InProcess(), cut, tmp_path / "cut-log")
        deleted.append(upkeep(cut, tmp_path / "cut-log").counts["segments_deleted"])
    assert sum(1 for count in deleted if count) > 1, "it was cut more than once"
    log.write(tmp_path / "whole-log")
    cycle(InProcess(), whole, tmp_path / "whole-log")
    assert state(cut) == state(whole)
    left = {name: len(of) for name, of in _segments(tmp_path / "cut-log").items()}
    assert sum(map(len, _segments(tmp_path / "whole-log").values())) == sum(left.values()) + sum(deleted)
    _assert_no_gap(cut)


def test_segment_of_an_open_transaction_is_kept_and_noted(lake: Lake, log: Path) -> None:
    first = min((r["log_partition"], r["log_offset"], r["producer_id"]) for r in rows(lake, "pending_offsets"))
    before = _segments(log)
    row = upkeep(lake, log)
    partition, offset, producer = first
    name = f"__consumer_offsets-{partition}"
    held = [base for base, end in zip(before[name], before[name][1:], strict=False) if end > offset]
    assert held
    assert len(held) < len(before[name])
    assert _segments(log)[name] == [*held, before[name][-1]]
    (note,) = [note for note in row.notes if note.startswith(f"{name}: {len(held)} segment")]
    assert note.endswith(f" kept in the log: an open transaction of producer {producer} at offset {offset}")


def test_uncompacted_segments_are_kept(tmp_path: Path) -> None:
    log, made = tmp_path / "log", new_lake(tmp_path / "lake")
    write(log, [batch(0)], [batch(3)])
    cycle(InProcess(), made, log)
    write(log, [batch(6)], [batch(9)])
    ingest(InProcess, made, LogAddress(folder=log), lambda _: None)  # type: ignore[arg-type]
    (note,) = upkeep(made, log).notes
    assert note == "__consumer_offsets-0: 1 segment kept in the log: not compacted yet: run `offsetlake compact`"
    assert _segments(log) == {"__consumer_offsets-0": [6, 9]}
    write(log, [batch(12)], [batch(15)])
    cycle(InProcess(), made, log)
    write(log, [batch(18)], [batch(21)])
    (note,) = upkeep(made, log).notes
    assert note == "__consumer_offsets-0: 1 segment kept in the log: not read yet: run `offsetlake ingest`"
    assert _segments(log) == {"__consumer_offsets-0": [18, 21]}


def test_nothing_is_deleted_before_the_first_ingest_and_compact(tmp_path: Path, log: Path) -> None:
    made, before = new_lake(tmp_path / "new"), _segments(log)
    held = sum(map(len, before.values())) - 2
    (note,) = upkeep(made, log).notes
    assert note == f"2 log partitions: {held} segments kept in the log: not read yet: run `offsetlake ingest`"
    ingest(InProcess, made, LogAddress(folder=log), lambda _: None)  # type: ignore[arg-type]
    assert "not compacted yet: run `offsetlake compact`" in upkeep(made, log).notes[0]
    assert _segments(log) == before


def test_other_log_is_refused_and_not_changed(lake: Lake, tmp_path: Path) -> None:
    same = _random_log()  # but for the clock
    RandomLog(same.world, (replace(same.plans[0], tick=12_345), *same.plans[1:])).write(tmp_path / "other")
    before, tables = _bytes(tmp_path / "other"), lake.versions(*TABLES)
    with pytest.raises(LogMismatch, match="a lake contains one log"):
        upkeep(lake, tmp_path / "other")
    assert _bytes(tmp_path / "other") == before
    assert lake.versions(*TABLES) == tables
    assert current_run.unfinished_plan(lake, "maintain", plans.Plan) is None


def test_segments_of_an_unverified_log_are_kept(tmp_path: Path) -> None:
    """Nothing speaks against it: the batch before the position of the lake may have been removed by compaction."""
    write(tmp_path / "log", [batch(0)], [batch(3)], [batch(6)])
    write(tmp_path / "other", [batch(0, 2)], [batch(2, 2)], [batch(4, 2), batch(9)])
    made = new_lake(tmp_path / "lake")
    cycle(InProcess(), made, tmp_path / "log")
    assert [len(each.cut.obsolete) for each in preview(made, tmp_path / "log", NO_RETENTION).cuts] == [2]
    row = upkeep(made, tmp_path / "other")
    assert "cannot verify that the lake was read from this log" in row.notes[0]
    assert len(_segments(tmp_path / "other")["__consumer_offsets-0"]) == 3


def test_data_folder_of_a_broker_is_refused(lake: Lake, log: Path) -> None:
    (log / "meta.properties").write_text("cluster.id=x\n")
    before = _bytes(log)
    for attempt in (upkeep, preview):
        with pytest.raises(LogBusy, match="belongs to a broker"):
            attempt(lake, log, WEEK)
    assert _bytes(log) == before


def share_record(offset: int, kind: str, partition: int) -> Record:
    """Return a record of `__share_group_state`."""
    record_type = ShareStateRecordType.SHARE_UPDATE if kind == "update" else ShareStateRecordType.SHARE_SNAPSHOT
    key = {"groupId": "g", "topicId": "0UpezRseR2unUk_C-KbOfg", "partition": partition}
    value = {"snapshotEpoch": 1, "leaderEpoch": 0, "startOffset": offset, "stateBatches": []}
    value |= {} if kind == "update" else {"stateEpoch": 1, "createTimestamp": 1, "writeTimestamp": 1}
    encoded = None if kind == "tombstone" else encode_value(SHARE_STATE_TOPIC, record_type, 0, value)
    return Record(offset, 1_000 + offset, encode_key(SHARE_STATE_TOPIC, record_type, key), encoded)


def share_batches(*records: tuple[str, int]) -> list[Batch]:
    return [Batch(records=(share_record(offset, *record),)) for offset, record in enumerate(records)]


@pytest.mark.parametrize(
    ("records", "left"),
    [
        ([("snapshot", 0), ("update", 0), ("snapshot", 0), ("update", 0), ("update", 0)], [2, 3, 4]),
        ([("snapshot", 1), ("snapshot", 0), ("snapshot", 0), ("update", 0)], [0, 1, 2, 3]),
        ([("snapshot", 1), ("snapshot", 0), ("tombstone", 1), ("update", 0)], [1, 2, 3]),
        ([("update", 0), ("update", 0), ("update", 0)], [0, 1, 2]),
        ([("snapshot", 0), ("update", 0), ("tombstone", 0)], [2]),
    ],
    ids=["updates", "an older snapshot of another", "another was deleted", "no snapshot", "all were deleted"],
)
def test_share_group_state_is_kept_from_the_newest_snapshots_on(
    records: list[tuple[str, int]], left: list[int], tmp_path: Path
) -> None:
    """A segment contains one record; the last segment is never deleted."""
    made, starts = new_lake(tmp_path / "lake"), tuple(range(len(records)))
    batches = share_batches(*records)
    write_partition(tmp_path / "log", 0, batches, segment_starts=starts, topic=SHARE_STATE_TOPIC)
    write_partition(tmp_path / "log", 0, [batch(0)])
    cycle(InProcess(), made, tmp_path / "log")
    before = rows(made, "share_partitions")
    found = {str(each.cut.log_partition): each for each in preview(made, tmp_path / "log", NO_RETENTION).cuts}
    assert len(found["__share_group_state-0"].cut.obsolete) == len(records) - len(left)
    assert upkeep(made, tmp_path / "log").notes == (), "it is as it should be"
    assert _segments(tmp_path / "log")["__share_group_state-0"] == left
    lake = new_lake(tmp_path / "again")
    cycle(InProcess(), lake, tmp_path / "log")
    assert rows(lake, "share_partitions") == before, "the remaining log gives the same state"


def test_share_group_state_is_cut_only_as_far_as_it_is_compacted(tmp_path: Path) -> None:
    log, made = tmp_path / "log", new_lake(tmp_path / "lake")
    first = [("snapshot", 0), ("snapshot", 0)]
    batches = share_batches(*first, ("snapshot", 0), ("snapshot", 0))
    write_partition(log, 0, batches[:2], segment_starts=(0, 1), topic=SHARE_STATE_TOPIC)
    cycle(InProcess(), made, log)
    write_partition(log, 0, batches, segment_starts=(0, 1, 2, 3), topic=SHARE_STATE_TOPIC)
    ingest(InProcess, made, LogAddress(folder=log), lambda _: None)  # type: ignore[arg-type]
    upkeep(made, log)
    assert _segments(log) == {"__share_group_state-0": [2, 3]}


def test_interrupted_run_must_be_resumed_first(lake: Lake, log: Path) -> None:
    plan = current_run.begin(lake, "compact", plans.Plan())
    before = _bytes(lake.location.path) | _bytes(log)
    for attempt in (upkeep, preview):
        with pytest.raises(LakeBusy, match=rf"run {plan.run_id} of compact in .* run `offsetlake compact` again"):
            attempt(lake, log, 0)
    after = _bytes(lake.location.path) | _bytes(log)
    assert {path for path in after if after[path] != before.get(path)} <= {
        lake.location.path / "lock",
        lake.location.path / "verified.json",
    }


def test_dry_run_writes_nothing_and_predicts_the_run(lake: Lake, log: Path) -> None:
    before = _bytes(lake.location.path) | _bytes(log)
    found = preview(lake, log, NO_RETENTION)
    assert _bytes(lake.location.path) | _bytes(log) == before
    counts = upkeep(lake, log).counts
    assert counts["segments_deleted"] == sum(len(each.cut.obsolete) for each in found.cuts) > 0
    assert counts["bytes_deleted"] == sum(each.cut.size for each in found.cuts)
    assert counts["files_compacted"] == sum(found.compacted.values()) > 0
    assert counts["files_removed"] == sum(found.removed.values()) + counts["files_compacted"], "retention is 0 here"


@pytest.mark.long
def test_history_reads_the_same_from_compacted_tables(lake: Lake, log: Path) -> None:
    def answers() -> Iterator[Any]:
        yield state(lake)
        yield rows(lake, "runs")
        for group, topic, partition in sorted({(r["group_id"], r["topic"], r["partition"]) for r in commits})[:10]:
            yield questions.history(lake, group, topic, partition).to_pylist()
        for instant in sorted({r["log_timestamp"] for r in commits if r["log_timestamp"]})[::40]:
            yield offsets_as_of(lake, instant).to_pylist()

    commits = rows(lake, "offset_commits")
    before, versions = list(answers()), lake.versions(*TABLES)
    newest = runs.last_run(lake, "ingest")
    assert newest is not None
    counts = upkeep(lake, vacuum_retention_ms=WEEK).counts
    assert counts["files_compacted"] >= 6
    after = list(answers())
    after[1] = [run for run in after[1] if run["job"] != "maintain"]
    assert after == before
    assert lake.versions("offset_commits")["offset_commits"] == versions["offset_commits"] + 1
    (file,) = history_files(lake, "offset_commits", newest.run_id, newest.run_id)
    assert (file.first_partition, file.last_partition) == (0, 1), "statistics are there"
    assert not history_files(lake, "offset_commits", newest.run_id + 1, LATER)
    metadata = pq.ParquetFile(lake.table_location("offset_commits").path / file.path).metadata
    columns = [metadata.row_group(0).column(at) for at in range(metadata.num_columns)]
    assert {column.compression for column in columns} == {"ZSTD"}
    named = {column.path_in_schema: column for column in columns}
    assert all(named[name].has_dictionary_page for name in definition("offset_commits").repeating)
    assert named["ingest_run"].statistics.has_min_max
    _assert_goes_on(lake, log)


def _assert_goes_on(lake: Lake, log: Path) -> None:
    """Ingest, compact and expire go on with tables that were compacted, and planned decisions are not planned again."""
    assert plan_expiry(InProcess(), lake).counts["planned"] == 0
    _random_log().write(log)
    cycle(InProcess(), lake, log)
    plan_expiry(InProcess(), lake)
    other = new_lake(lake.location.path.parent / "other")
    for part in (0.4, 0.7, 1.0):
        folder = lake.location.path.parent / f"log-{part}"
        _part(_random_log(), part).write(folder)
        cycle(InProcess(), other, folder)
        if part > 0.5:
            plan_expiry(InProcess(), other)
    assert state(lake) == state(other)


def test_state_tables_keep_their_files(lake: Lake) -> None:
    def named(table: str) -> set[str]:
        return {file["path"] for file in files(lake, table)}

    cuts = {table: named(table) for table in TABLES}
    assert set(TABLES) - set(table_upkeep.APPENDED) == set(STATE)
    upkeep(lake)
    for table in STATE:
        assert named(table) == cuts[table]
        assert {path.name for path in lake.table_location(table).path.glob("*.parquet")} == cuts[table]
    for table in ("offset_commits", "transaction_markers", "group_records", "runs"):
        assert len(cuts[table]) > 1
        assert not named(table) & cuts[table] or table == "runs"


def test_vacuum_deletes_only_old_unreferenced_files(lake: Lake) -> None:
    old, young, named = (
        lake.table_location("offsets").path / name for name in ("part-old.parquet", "part-young.parquet", "x")
    )
    for path in (old, young):
        path.write_bytes(b"left behind")
    live = {file["path"] for file in files(lake, "offsets")}
    removed = {path.name for path in lake.table_location("offsets").path.glob("part-*")} - live - {old.name, young.name}
    assert removed, "a compaction has exchanged leaves"
    for path in {*lake.table_location("offsets").path.glob("part-*")} - {young}:
        os.utime(path, (1, 1))  # however old a file is: it counts when it went out of the table
    assert upkeep(lake, vacuum_retention_ms=WEEK).counts["files_removed"] == 1
    assert not named.exists()
    assert {path.name for path in lake.table_location("offsets").path.glob("part-*")} == live | removed | {young.name}
    upkeep(lake)
    assert {path.name for path in lake.table_location("offsets").path.glob("part-*")} == live


@pytest.mark.long
def test_old_delta_log_entries_are_deleted_alone(lake: Lake, log: Path) -> None:
    def known() -> dict[str, Any]:
        numbers = {
            f"{table} {job}": lake.delta_table(table).transaction_version(app_id(job))
            for table in TABLES
            for job in current_run.JOBS[:3]
        }
        return state(lake) | numbers

    upkeep(lake)
    entries = [*lake.location.path.glob("*/_delta_log/*.json")]
    for path in lake.location.path.glob("*/_delta_log/*"):
        os.utime(path, (1, 1))
    _random_log().write(log)
    cycle(InProcess(), lake, log)
    plan_expiry(InProcess(), lake)
    before = known()
    upkeep(lake)
    assert not [path for path in entries if path.parent.parent.name == "offset_commits" and path.exists()][1:]
    assert known() == before
    newest = max(run["run_id"] for run in rows(lake, "runs"))
    assert plan_expiry(InProcess(), lake).run_id == newest + 1


def test_second_maintenance_run_changes_nothing(lake: Lake, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert upkeep(lake, log).outcome == "done"
    monkeypatch.setattr(table_upkeep, "MIN_SMALL_FILES", 4)
    again = upkeep(lake, log)
    assert (again.outcome, {*again.counts.values()}) == ("nothing new", {0})


@pytest.mark.long
@pytest.mark.jvm
def test_spark_reads_what_remains_of_dropped_history(spark: SparkSession, lake: Lake) -> None:
    rows_before = lake.count("offset_commits")
    maintain(lake, None, VacuumRetention(0, 0), lambda _: None, Keep(history_ms=0, audit_events_ms=0))
    assert lake.count("offset_commits") < rows_before
    for table in (*HISTORY, "history_cuts"):
        read = spark.read.format("delta").load(str(lake.table_location(table).path)).collect()
        assert plain(row.asDict(recursive=True) for row in read) == contents(lake, table), table


@pytest.mark.long
@pytest.mark.jvm
def test_spark_reads_and_writes_maintained_tables(spark: SparkSession, lake: Lake, log: Path) -> None:
    before = {table: contents(lake, table) for table in TABLES if table != "runs"}
    upkeep(lake, log)
    for table, expected in before.items():
        read = spark.read.format("delta").load(str(lake.table_location(table).path)).collect()
        assert plain(row.asDict(recursive=True) for row in read) == expected, table
    grow(log, _random_log())
    cycle(spark, lake, log)
    whole = new_lake(lake.location.path.parent / "whole")
    shutil.rmtree(log)
    _random_log().write(log)
    cycle(InProcess(), whole, log)
    others = ("runs", "tombstones", "alterations", "log_ends", "history_cuts", "audit_events")
    tables = [table for table in TABLES if table not in others]
    assert {table: state(lake)[table] for table in tables} == {table: state(whole)[table] for table in tables}
    _assert_no_gap(lake)


def test_state_tables_are_vacuumed_earlier_than_others(lake: Lake) -> None:
    for table in TABLES:
        for path in lake.table_location(table).path.glob("part-*"):
            os.utime(path, (1, 1))
    unreferenced = {
        table: {path.name for path in lake.table_location(table).path.glob("part-*")}
        - {file["path"] for file in files(lake, table)}
        for table in STATE
    }
    assert any(unreferenced.values())
    (lake.table_location("runs").path / "part-old.parquet").write_bytes(b"left behind")
    assert maintain(lake, None, VacuumRetention(WEEK, 0), lambda _: None).counts["files_removed"] == sum(
        map(len, unreferenced.values())
    )
    assert (lake.table_location("runs").path / "part-old.parquet").exists()
