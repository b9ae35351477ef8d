"""The table `share_partitions`: maintained run by run, killed, rebuilt, after a cut of history, and in older lakes."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from offsetlake.lake.definitions import LAKE_VERSION, STATE
from offsetlake.lake.foreign.guard import refuse_changed
from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import last_run
from offsetlake.lake.upkeep import VacuumRetention
from offsetlake.pipeline.compact import job
from offsetlake.pipeline.compact.job import compact
from offsetlake.pipeline.compact.rebuild import rebuild
from offsetlake.pipeline.maintain.job import maintain
from offsetlake.rules.policy import Keep
from support.e2e.divided import divided
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, rows
from support.lakes import new_lake
from support.queries.lakes import Row, commit, small_lake

FIXTURES = Path(__file__).parents[1] / "fixtures"
TOPIC_IDS = ("0UpezRseR2unUk_C-KbOfg", "1UpezRseR2unUk_C-KbOfg")
LATER = 1_900_000_000_000
RUNS = (1, 11, 21)


def quiet(_text: str) -> None:
    pass


def records(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield rows of `share_state_records` of some share partitions in two log partitions, in log order."""
    log_offsets = [0, 0]
    for number in range(count):
        log_partition = rng.randrange(2)
        key = {
            "group_id": f"share-{log_partition}{rng.randrange(3)}",
            "topic_id": rng.choice(TOPIC_IDS), "partition": rng.randrange(2),
        }  # fmt: skip
        position = {"log_partition": log_partition, "log_offset": log_offsets[log_partition], "log_timestamp": number}
        log_offsets[log_partition] += 1
        kind = rng.choices(["update", "snapshot", "tombstone"], [12, 4, 1])[0]
        first = rng.randrange(40)
        batch = {
            "first_offset": first, "last_offset": first + rng.randrange(9), "delivery_state": rng.choice([0, 2, 4]),
            "delivery_count": rng.randrange(1, 4),
        }  # fmt: skip
        value = {
            "snapshot_epoch": number, "leader_epoch": rng.choice([-1, number]),
            "start_offset": rng.choice([-1, rng.randrange(30)]), "value_version": 0,
            "delivery_complete_count": rng.choice([None, 3]), "state_batches": [batch],
        }  # fmt: skip
        if kind == "snapshot":
            value |= {"state_epoch": number, "create_timestamp": 5, "write_timestamp": number}
        yield {**key, **position, "kind": kind, **({} if kind == "tombstone" else value)}


def by_record(share_records: list[Row]) -> dict[Any, dict[int, tuple[int, int]]]:
    """Return by share partition the delivery count and state of each record in flight, computed record by record."""
    starts: dict[Any, int] = {}
    found: dict[Any, dict[int, tuple[int, int]]] = {}
    for row in share_records:
        key = row["group_id"], row["topic_id"], row["partition"]
        if row["kind"] == "tombstone" or row["kind"] == "snapshot":
            starts.pop(key, None)
            found.pop(key, None)
        if row["kind"] == "tombstone":
            continue
        is_first = key not in found
        if row["start_offset"] != -1 or is_first:
            starts[key] = row["start_offset"]
        of_records = found.setdefault(key, {})
        for batch in row["state_batches"]:
            for offset in range(batch["first_offset"], batch["last_offset"] + 1):
                each = batch["delivery_count"], batch["delivery_state"]
                of_records[offset] = max(of_records.get(offset, each), each)
        if not is_first:
            found[key] = {offset: each for offset, each in of_records.items() if offset >= starts[key]}
    return found


def last_updates(share_records: list[Row]) -> dict[Any, int]:
    """Return when each share partition that exists was last updated, or without an update, first written."""
    found: dict[Any, list[Row]] = {}
    for row in share_records:
        key = row["group_id"], row["topic_id"], row["partition"]
        if row["kind"] == "tombstone":
            found.pop(key, None)
        else:
            found.setdefault(key, []).append(row)
    updates = {key: [row for row in written if row["kind"] == "update"] for key, written in found.items()}
    return {key: (updates[key][-1:] or written)[0]["log_timestamp"] for key, written in found.items()}


def add_runs(path: Path, parts: list[list[Row]]) -> Iterator[Lake]:
    """Add the rows of each ingest run to a lake, and yield the lake after each run."""
    for run_id, part in zip(RUNS, parts, strict=True):
        small_lake(
            path,
            share_state_records=[{**row, "ingest_run": run_id} for row in part],
            runs=[{"run_id": run_id, "job": "ingest", "started_at": run_id, "finished_at": run_id}],
        )
        yield Lake.create(path)


def parts_of(seed: int) -> list[list[Row]]:
    made = [*records(random.Random(seed), 240)]
    return [made[:80], made[80:100], made[100:]]


def compacted(lake: Lake) -> list[dict[str, Any]]:
    compact(InProcess, lake, quiet)  # type: ignore[arg-type]
    return rows(lake, "share_partitions")


@pytest.mark.parametrize("seed", [1, 2])
def test_run_by_run_gives_the_rows_of_the_whole_history(seed: int, tmp_path: Path) -> None:
    parts = parts_of(seed)
    for lake in add_runs(tmp_path / "lake", parts):
        incremental = compacted(lake)
    *_, whole = add_runs(tmp_path / "whole", [[*parts[0], *parts[1], *parts[2]], [], []])
    assert incremental == compacted(whole)
    found = {
        (row["group_id"], row["topic_id"], row["partition"]): {
            offset: (batch["delivery_count"], batch["delivery_state"])
            for batch in row["state_batches"]
            for offset in range(batch["first_offset"], batch["last_offset"] + 1)
        }
        for row in incremental
    }
    expected = by_record([row for part in parts for row in part])
    assert found == expected
    times = {(row["group_id"], row["topic_id"], row["partition"]): row["updated_timestamp"] for row in incremental}
    assert times == last_updates([row for part in parts for row in part])
    for row in incremental:
        states = [state for _, state in expected[row["group_id"], row["topic_id"], row["partition"]].values()]
        counts = [row["available_records"], row["acknowledged_records"], row["archived_records"]]
        assert counts == [states.count(state) for state in (0, 2, 4)]


def test_divided_by_ranges_of_groups_gives_the_same_rows(tmp_path: Path) -> None:
    parts = parts_of(3)
    for lake in add_runs(tmp_path / "one", parts):
        expected = compacted(lake)
    commits = [commit(offset, 1, group_id=f"share-0{offset % 3}") for offset in range(60)]
    for lake in add_runs(tmp_path / "divided", parts):
        if lake.count("offset_commits") == 0:
            small_lake(tmp_path / "divided", offset_commits=commits)
        with divided():
            found = compacted(lake)
    assert found == expected


@pytest.mark.long
@pytest.mark.parametrize(
    ("table", "after"), [("offsets", False), ("share_partitions", False), ("share_partitions", True)]
)
def test_killed_compaction_is_resumed(table: str, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class KilledError(Exception):
        pass

    real = job.commit

    def killing(lake: Lake, name: str, *arguments: Any) -> None:
        if name != table or after:
            real(lake, name, *arguments)
        if name == table:
            raise KilledError

    parts = parts_of(4)
    for lake in add_runs(tmp_path / "whole", parts):
        expected = compacted(lake)
    for lake in add_runs(tmp_path / "lake", parts):
        with monkeypatch.context() as patch:
            patch.setattr(job, "commit", killing)
            with pytest.raises(KilledError):
                compacted(lake)
        found = compacted(Lake.create(tmp_path / "lake"))
    assert found == expected


def test_rebuild_restores_the_rows_also_after_history_was_cut(tmp_path: Path) -> None:
    for lake in add_runs(tmp_path / "lake", parts_of(5)):
        before = compacted(lake)
    for keep in (Keep(), Keep(history_ms=0)):
        maintain(lake, None, VacuumRetention(7 * 86_400_000, 7 * 86_400_000), quiet, keep, LATER)
        rebuild(InProcess, lake, quiet, ["share_partitions"])  # type: ignore[arg-type]
        assert rows(lake, "share_partitions") == before
    assert lake.count("share_state_records") < sum(map(len, parts_of(5)))
    rebuild(InProcess, lake, quiet, ["share_partitions"], 1)  # type: ignore[arg-type]
    assert rows(lake, "share_partitions") == before


def upgraded(path: Path) -> Lake:
    """Return a lake of two ingest runs that a program of lake version 7 has compacted, with the new table."""
    compaction = {"run_id": 12, "job": "compact", "started_at": 12, "finished_at": 12, "through_run": RUNS[1]}
    small_lake(path, runs=[compaction])
    shutil.rmtree(path / "share_partitions")
    (path / "offsetlake.json").write_text('{"version": 7}')
    return Lake.create(path)


@pytest.mark.parametrize("more", [True, False], ids=["with new history", "without new history"])
@pytest.mark.parametrize("first", ["compact", "rebuild"])
def test_older_lake_is_filled_from_its_history(first: str, more: bool, tmp_path: Path) -> None:
    parts = parts_of(6)
    for lake in add_runs(tmp_path / "whole", parts if more else [*parts[:2], []]):
        expected = compacted(lake)
    runs = add_runs(tmp_path / "old", parts)
    next(runs)
    next(runs)
    lake = upgraded(tmp_path / "old")
    if first == "rebuild":
        rebuild(InProcess, lake, quiet, ["share_partitions"], 1)  # type: ignore[arg-type]
        for table in STATE:
            refuse_changed(lake, table)
    if more:
        lake = next(runs)
    assert compacted(lake) == expected
    assert lake.version() == LAKE_VERSION
    assert compacted(lake) == expected


def test_compaction_that_was_killed_after_filling_an_older_lake_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(Exception):
        pass

    def killing(*_arguments: Any) -> None:
        raise KilledError

    runs_of_lake = add_runs(tmp_path / "old", parts_of(6))
    next(runs_of_lake)
    next(runs_of_lake)
    lake = upgraded(tmp_path / "old")
    with monkeypatch.context() as patch:
        patch.setattr(job, "_plan", killing)
        with pytest.raises(KilledError):
            compacted(lake)
    count = len(compacted(lake))
    run = last_run(lake, "compact")
    assert run is not None
    assert run.counts["share_partitions"] == count > 0


@pytest.mark.parametrize("offset", [2**63 - 1, -(2**63)])
def test_extreme_numbers_of_a_malformed_log_are_limited(offset: int, tmp_path: Path) -> None:
    batch = {"first_offset": -(2**63), "last_offset": 2**63 - 1, "delivery_state": 7, "delivery_count": -3}
    value = {
        "snapshot_epoch": -1, "state_epoch": -5, "leader_epoch": -7, "start_offset": offset, "value_version": 0,
        "state_batches": [batch, {**batch, "delivery_count": 32_767, "delivery_state": 0}],
        "create_timestamp": -1, "write_timestamp": -1,
    }  # fmt: skip
    key = {"group_id": "g", "topic_id": TOPIC_IDS[0], "partition": -1, "log_partition": 0, "log_timestamp": 1}
    made = [{**key, **value, "log_offset": number, "kind": kind} for number, kind in enumerate(("snapshot", "update"))]
    for lake in add_runs(tmp_path / "lake", [made, [], []]):
        (row,) = compacted(lake)
    assert row["end_offset"] == 2**63 - 1
    assert row["available_records"] == min(2**63 - 1, 2**63 - offset)


def test_log_of_a_broker(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    cycle(InProcess(), lake, FIXTURES / "broker-log")
    shown = ("group_id", "partition", "state_epoch", "leader_epoch", "start_offset", "end_offset", "available_records")
    assert [tuple(row[name] for name in shown) for row in rows(lake, "share_partitions")] == [
        ("thumbnailer", 0, 1, 0, 20, 40, 20),
        *(("thumbnailer", partition, 1, 0, None, None, 0) for partition in range(1, 6)),
    ]
