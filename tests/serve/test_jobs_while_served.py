"""The jobs that write to a served log: same results as without a server, and their writes are served at once."""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from offsetlake.errors import LogUnavailable
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.writer.served_log import ServedLog
from offsetlake.pipeline.changes.repair import repair, truncate_torn_ends
from offsetlake.pipeline.emit.job import emit
from offsetlake.pipeline.emit.log_writer import WRITTEN_SINCE
from support.command_line import Run
from support.e2e.in_process import InProcess
from support.e2e.lakes import Rows, cycle, plan_expiry, rows, upkeep
from support.e2e.parts_log import TIME, Log, part, plain
from support.lakes import new_lake
from support.oracle.log_reader import read_log
from support.oracle.random_logs import random_log
from support.oracle.replay import replay
from support.serve.job_socket_requests import TOPIC, commit, fetched
from support.serve.serving import Serving
from support.serve.wire_client import WireClient

pytestmark = pytest.mark.slow

REAL_LOG = Path(__file__).parents[1] / "fixtures" / "broker-log"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that this program owns, and its lake."""
    folder = tmp_path_factory.mktemp("served-jobs")
    shutil.copytree(REAL_LOG, folder / "log")
    (folder / "log" / "meta.properties").unlink()
    cycle(InProcess(), new_lake(folder / "lake"), folder / "log")
    return folder


def written(log: Path) -> list[tuple[Any, ...]]:
    """Return the records of a log without their times."""
    return [(r.log_partition, r.log_offset, r.key, r.value is None) for r in read_log(log)]


def tables(lake: Path) -> dict[str, Rows]:
    """Return the tables that the jobs wrote, without times."""
    opened = Lake.open(lake)
    names = {table: opened.columns(table) for table in ("offsets", "groups", "tombstones", "alterations")}
    return {
        table: rows(opened, table, *(name for name in columns if "timestamp" in name))
        for table, columns in names.items()
    }


def stored(lake: Path) -> dict[tuple[str, str, int], int]:
    return {
        (row["group_id"], row["topic"], row["partition"]): row["committed_offset"]
        for row in rows(Lake.open(lake), "offsets")
    }


def assert_served(client: WireClient, offsets: dict[tuple[str, str, int], int], among: Iterable[Any]) -> None:
    """Assert that exactly the given offsets are served, of their keys and those of `among`."""
    keys = {*offsets, *among}
    served = {(group, topic, number): fetched(client, group, number, topic=topic)[0] for group, topic, number in keys}
    assert served == {key: offsets.get(key, -1) for key in keys}


COMMANDS = ("cleanup bulk-1", "restore --run LAST", "reset bulk-2 --all-topics --shift-by -3")


def execute(run: Run, then: Callable[[], None]) -> None:
    """Execute the commands in the current folder."""
    last = ""
    for command in COMMANDS:
        arguments = command.replace("LAST", last).split()
        code, _, errors = run(*arguments, "--execute", "--log", "log")
        assert code == 0, (command, errors)
        last = errors.rpartition("restore --run ")[2].strip()
        then()


@pytest.mark.long
def test_commands_that_change_offsets_work_on_a_served_log(
    run: Run, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("alone", "served"):
        shutil.copytree(made, tmp_path / name)
    monkeypatch.chdir(tmp_path / "alone")
    execute(run, lambda: None)
    monkeypatch.chdir(tmp_path / "served")
    lake, log = tmp_path / "served" / "lake", tmp_path / "served" / "log"
    before = stored(lake)
    with Serving(lake, log) as serving, WireClient(serving.bootstrap) as client:
        assert_served(client, before, ())
        execute(run, lambda: assert_served(client, stored(lake), before))
        (line,) = [line for line in serving.said if " Serving " in line]
        assert f"{len(before)} offsets" in line
    assert tables(lake) == tables(tmp_path / "alone" / "lake")
    assert written(log) == written(tmp_path / "alone" / "log")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log and its lake with planned tombstones."""
    folder = tmp_path_factory.mktemp("served-plans")
    random_log(random.Random(11), 600, groups=12, log_partitions=3, batches_per_segment=8).write(folder / "log")
    lake = new_lake(folder / "lake")
    cycle(InProcess(), lake, folder / "log")
    plan_expiry(InProcess(), lake)
    return folder


@pytest.fixture(scope="module")
def emitted(evaluated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same after emit wrote the planned tombstones without a server."""
    folder = tmp_path_factory.mktemp("served-emitted")
    send(copied(evaluated, folder / "alone"), folder / "alone" / "log")
    return folder / "alone"


def copied(made: Path, folder: Path) -> Lake:
    shutil.copytree(made, folder)
    return Lake.open(folder / "lake")


def counts_of(lake: Lake) -> Counter[str]:
    """Return the number of decisions by outcome."""
    return Counter(row["outcome"] for row in rows(lake, "tombstones"))


def serve(folder: Path, log_partitions: int = 3) -> Serving:
    return Serving(folder / "lake", folder / "log", log_partitions=log_partitions)


def send(lake: Lake, log: Path) -> dict[str, int]:
    """Emit the planned tombstones and return the number of decisions by outcome."""
    return {name: n for name, n in emit(lake, LogAddress(folder=log), lambda _: None).counts.items() if n}


@pytest.mark.long
def test_tombstones_of_emit_are_served(evaluated: Path, emitted: Path, tmp_path: Path) -> None:
    lake, log = copied(evaluated, tmp_path / "served"), tmp_path / "served" / "log"
    before = stored(lake.location.path)
    with serve(tmp_path / "served") as serving, WireClient(serving.bootstrap) as client:
        send(lake, log)
        deleted = {
            (row["group_id"], row["topic"], row["partition"])
            for row in rows(lake, "tombstones")
            if row["outcome"] == "emitted"
        }
        left = {key: offset for key, offset in before.items() if key not in deleted}
        assert left != before
        assert_served(client, left, before)
    assert tables(lake.location.path) == tables(emitted / "lake")
    assert written(log) == written(emitted / "log")


@pytest.mark.long
def test_commit_between_evaluation_and_emit_is_kept(
    evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, log = copied(evaluated, tmp_path / "moved"), tmp_path / "moved" / "log"
    planned = [row for row in rows(lake, "tombstones") if row["outcome"] == "planned" and row["topic"] is not None]
    moved = planned[0]
    append = ServedLog.append
    with serve(tmp_path / "moved") as serving, WireClient(serving.bootstrap) as client:

        def commit_then_append(served_log: ServedLog, partition: int, batches: Any) -> list[int]:
            if partition == moved["log_partition"]:
                commit(client, moved["group_id"], {moved["partition"]: 77}, moved["topic"])
            return append(served_log, partition, batches)

        monkeypatch.setattr(ServedLog, "append", commit_then_append)
        counts = send(lake, log)
        assert fetched(client, moved["group_id"], moved["partition"], topic=moved["topic"]) == [77]
    refused = [row for row in rows(lake, "tombstones") if row["outcome"] == "refused"]
    of_group = [row for row in refused if row["group_id"] == moved["group_id"]]
    assert of_group
    assert {row["reason"] for row in of_group} == {WRITTEN_SINCE}
    assert {row["log_offset"] for row in of_group} == {None}
    assert counts["refused"] == len(refused)
    assert counts["emitted"]
    cycle(InProcess(), lake, log)
    assert stored(lake.location.path)[moved["group_id"], moved["topic"], moved["partition"]] == 77


@pytest.mark.long
def test_emit_is_resumed_after_the_server_was_killed(
    evaluated: Path, emitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, log = copied(evaluated, tmp_path / "killed"), tmp_path / "killed" / "log"
    before, append = stored(lake.location.path), ServedLog.append
    with serve(tmp_path / "killed") as serving:

        def append_then_kill(served_log: ServedLog, partition: int, batches: Any) -> list[int]:
            firsts = append(served_log, partition, batches)
            serving.kill()
            return firsts

        monkeypatch.setattr(ServedLog, "append", append_then_kill)
        with pytest.raises(LogUnavailable, match=r"stay planned. Run the command again"):
            send(lake, log)
    assert not [row for row in rows(lake, "tombstones") if row["outcome"] != "planned"]
    monkeypatch.undo()
    with serve(tmp_path / "killed") as serving, WireClient(serving.bootstrap) as client:
        send(lake, log)
        left = replay(read_log(emitted / "log")).committed
        assert_served(client, {key: of.committed_offset for key, of in left.items()}, before)
    assert written(log) == written(emitted / "log"), "nothing is written twice"
    ended = [of - Counter(planned=of["planned"]) for of in (counts_of(lake), counts_of(Lake.open(emitted / "lake")))]
    assert ended[0].total() == ended[1].total()


@pytest.mark.long
def test_each_decision_is_written_by_one_of_two_concurrent_jobs(evaluated: Path, tmp_path: Path) -> None:
    """Two lakes of one log plan the same tombstones; each is written by one job and refused for the other."""
    lakes = copied(evaluated, tmp_path / "first"), copied(evaluated, tmp_path / "second")
    planned = counts_of(lakes[0])["planned"]
    with serve(tmp_path / "first"), ThreadPoolExecutor(2) as pool:
        counts = [*pool.map(lambda lake: send(lake, tmp_path / "first" / "log"), lakes)]
    assert {sum(of.values()) for of in counts} == {planned}
    emitted = [(row["log_partition"], row["log_offset"]) for lake in lakes for row in rows(lake, "tombstones")
               if row["outcome"] == "emitted"]  # fmt: skip
    assert len({*emitted}) == len(emitted) == planned, "each decision is written exactly once"


@pytest.mark.long
def test_incomplete_commits_are_repaired_through_the_job_socket(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.batch(*(plain(partition, 10 + partition) for partition in range(4)))
    log.batch(*(part(partition, 20 + partition, size=5) for partition in range(4)))
    log.read()
    folder = tmp_path / "log"
    with serve(tmp_path, log_partitions=1) as serving, WireClient(serving.bootstrap) as client:
        assert truncate_torn_ends(folder) == []
        came = repair(log.lake, LogAddress(folder=folder), TIME, lambda _: None, [])
        assert came["log_offset"].to_pylist() == [8, 9, 10, 11]
        assert fetched(client, "g", 0, 1, 2, 3, topic="t") == [10, 11, 12, 13]
    cycle(InProcess(), log.lake, folder)
    assert log.offsets() == {0: 10, 1: 11, 2: 12, 3: 13}
    assert log.pending() == []


def segments(log: Path) -> set[str]:
    return {f"{path.parent.name}/{path.name}" for path in log.glob("*/*.log")}


@pytest.mark.long
def test_log_segments_are_deleted_for_the_served_lake_only(emitted: Path, tmp_path: Path) -> None:
    alone = copied(emitted, tmp_path / "alone")
    cycle(InProcess(), alone, tmp_path / "alone" / "log")
    lake, another = (copied(tmp_path / "alone", tmp_path / name) for name in ("served", "another"))
    log = tmp_path / "served" / "log"
    before, offsets = segments(log), stored(lake.location.path)
    expected = upkeep(alone, tmp_path / "alone" / "log").counts
    with serve(tmp_path / "served") as serving, WireClient(serving.bootstrap) as client:
        with pytest.raises(LogUnavailable, match="only compactions of that lake can delete log segments"):
            upkeep(another, log)
        assert segments(log) == before
        assert upkeep(lake, log).counts == expected
        assert_served(client, offsets, ())
        commit(client, "afterwards", {0: 1})
    assert expected["segments_deleted"]
    assert segments(log) < before
    assert len(before - segments(log)) == expected["segments_deleted"]
    with serve(tmp_path / "served") as serving, WireClient(serving.bootstrap) as client:
        assert_served(client, offsets | {("afterwards", TOPIC, 0): 1}, ())
