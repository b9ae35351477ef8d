"""A log whose last records were lost and written again: nothing that depends on it answers from a mixture."""

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offsetlake.cli import main
from offsetlake.errors import LogMismatch
from offsetlake.kafka.records.coordinator_records import SHARE_STATE_TOPIC, ShareStateRecordType, encode_key
from offsetlake.lake import current_run
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline import runner
from offsetlake.pipeline.compact.snapshot import open_snapshot
from offsetlake.pipeline.emit.job import emit
from offsetlake.pipeline.ingest import job as ingest_job
from offsetlake.pipeline.ingest.job import ingest
from offsetlake.serve.storage.snapshot_build import build
from support.e2e.in_process import InProcess, NoSpark
from support.e2e.lakes import cycle, plan_expiry, rows, state, upkeep
from support.lakes import new_lake
from support.oracle.encoders import offset_key, offset_value
from support.oracle.log_writer import Batch, Record, write_partition

Change = Callable[[Path], None]
TIME = 1_700_000_000_000
SNAPSHOT = ShareStateRecordType.SHARE_SNAPSHOT


def commits(first: int, count: int, group: str, epoch: int) -> Batch:
    """One batch with commits of a group, to a partition for each log offset."""
    return Batch(
        records=tuple(
            Record(
                at, 1_700_000_000_000 + at, offset_key(group, "t", at), offset_value(3, 100 + at, commit_timestamp=1)
            )
            for at in range(first, first + count)
        ),
        partition_leader_epoch=epoch,
    )


def write(log: Path, *batches: Batch, segment_starts: tuple[int, ...] = (0,)) -> None:
    shutil.rmtree(log / "__consumer_offsets-0", ignore_errors=True)
    write_partition(log, 0, batches, segment_starts=segment_starts)
    (log / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=known\n")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with a cluster ID: log offsets 0 to 9 in leader epoch 4."""
    folder = tmp_path / "log"
    write(folder, commits(0, 8, "old", 4), commits(8, 2, "old", 4))
    return folder


@pytest.fixture
def lake(tmp_path: Path, log: Path) -> Lake:
    """A lake of the log."""
    opened = new_lake(tmp_path / "lake")
    cycle(InProcess(), opened, log)
    return opened


def _other_batch(log: Path) -> None:
    write(log, commits(0, 8, "old", 4), commits(8, 2, "new", 5), commits(10, 2, "new", 5))


def _other_batch_in_the_same_epoch(log: Path) -> None:
    write(log, commits(0, 8, "old", 4), commits(8, 2, "new", 4), commits(10, 2, "new", 4))


def _other_batch_of_the_same_length(log: Path) -> None:
    write(log, commits(0, 8, "old", 4), commits(8, 2, "new", 5))


def _batch_across_the_position(log: Path) -> None:
    write(log, commits(0, 8, "old", 4), commits(8, 4, "new", 5))


def _same_batch_in_another_epoch(log: Path) -> None:
    write(log, commits(0, 8, "new", 5), commits(8, 2, "old", 5), commits(10, 2, "new", 5))


def _written_again_and_compacted(log: Path) -> None:
    left = Batch(records=commits(8, 2, "new", 5).records[:1], last_offset=9, partition_leader_epoch=5)
    write(log, commits(0, 8, "old", 4), left, commits(10, 2, "new", 5), segment_starts=(0, 10))


def _written_again_and_removed_by_compaction(log: Path) -> None:
    write(log, commits(0, 8, "old", 4), commits(10, 2, "new", 5), segment_starts=(0, 10))
    (log / "__consumer_offsets-0" / "leader-epoch-checkpoint").write_text("0\n2\n4 0\n5 8\n")


def _created_again(log: Path) -> None:
    write(log, commits(0, 7, "new", 0), commits(11, 2, "new", 0), segment_starts=(0, 11))  # compacted


CHANGES = {
    _other_batch: "the batch of __consumer_offsets-0 before log offset 10 is not the one that was read: its checksum",
    _other_batch_in_the_same_epoch: "its checksum is",
    _other_batch_of_the_same_length: "its checksum is",
    _batch_across_the_position: "contains the log offsets 8 to 11, but a batch that was read ended before log",
    _same_batch_in_another_epoch: "offset 10 in leader epoch 4, but the last batch before that is of leader epoch 5",
    _written_again_and_compacted: "the last batch before that is of leader epoch 5",
    _written_again_and_removed_by_compaction: "but in the log that leader epoch ends at log offset 8 now",
    _created_again: "in leader epoch 4, but the batch after that is of leader epoch 0",
}


@pytest.mark.parametrize("change", CHANGES)
def test_log_that_was_written_again_is_refused(change: Change, lake: Lake, log: Path) -> None:
    before = state(lake)
    change(log)
    for _ in range(2):
        with pytest.raises(LogMismatch, match=rf"{CHANGES[change]}.*nothing was read.*offsetlake run --lake \S+-new"):
            cycle(InProcess(), lake, log)
    assert state(lake) == before
    assert {row["group_id"] for row in rows(lake, "offset_commits")} == {"old"}


def test_log_of_share_groups_that_was_written_again_is_refused(lake: Lake, log: Path) -> None:
    def batch(at: int, group: str) -> Batch:
        key = encode_key(
            SHARE_STATE_TOPIC, SNAPSHOT, {"groupId": group, "topicId": "0UpezRseR2unUk_C-KbOfg", "partition": 0}
        )
        return Batch(records=(Record(at, TIME, key, None),))

    write_partition(log, 3, [batch(0, "old"), batch(1, "lost")], topic=SHARE_STATE_TOPIC)
    cycle(InProcess(), lake, log)
    write_partition(log, 3, [batch(0, "old"), batch(1, "new"), batch(2, "new")], topic=SHARE_STATE_TOPIC)
    with pytest.raises(LogMismatch, match="the batch of __share_group_state-3 before log offset 2 is not the one"):
        cycle(InProcess(), lake, log)
    assert {row["group_id"] for row in rows(lake, "share_state_records")} == {"lost", "old"}


def test_every_use_of_the_log_compares_it(lake: Lake, log: Path) -> None:
    plan_expiry(InProcess(), lake)
    _other_batch(log)
    (log / "meta.properties").unlink()  # of a broker: offsetlake does not write there
    address = LogAddress(folder=log)
    request = {"lake": str(lake.location.path), "log": str(log), "ends": None, "log_partitions": 1, "files": []}
    for use in (
        lambda: emit(lake, address, lambda _: None),
        lambda: open_snapshot(lake.location.path, log),
        lambda: build(request),
        lambda: upkeep(lake, log),
        lambda: runner.plan_change(lake, address, lambda copy: rows(copy, "offsets"), lambda _: None),  # type: ignore[arg-type, return-value]
    ):
        with pytest.raises(LogMismatch, match="is not the one that was read"):
            use()


def test_printed_command_reads_the_log_into_a_new_lake(
    lake: Lake, log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "LazySession", NoSpark)
    before = state(lake)
    _other_batch(log)
    assert main.run(["run", "--lake", str(lake.location.path), "--log", str(log)]) == 4
    command = re.search(r"`offsetlake (.*?)`", capsys.readouterr().err)
    assert command is not None
    arguments = shlex.split(command[1])
    assert main.run(arguments) == 0
    new = Lake.open(arguments[arguments.index("--lake") + 1])
    assert {(row["group_id"], row["partition"]) for row in rows(new, "offsets")} == {
        *(("old", at) for at in range(8)),
        *(("new", at) for at in range(8, 12)),
    }
    assert state(lake) == before


@pytest.mark.parametrize("compacted", [True, False])
def test_log_that_was_compacted_is_read_on(compacted: bool, lake: Lake, log: Path) -> None:
    left = commits(8, 2, "old", 4)
    kept = [Batch(records=left.records[:1], last_offset=9, partition_leader_epoch=4)] if compacted else []
    checkpoint = log / "__consumer_offsets-0" / "leader-epoch-checkpoint"
    for first, epoch in ((10, 4), (12, 6)):
        batches = [commits(at, 2, "old", 4 if at == 10 else 6) for at in range(10, first + 2, 2)]
        write(log, *kept, *batches, segment_starts=(0, 10))
        checkpoint.write_text("0\n2\n4 0\n6 12\n" if epoch == 6 else "0\n1\n4 0\n")
        ingested, _ = cycle(InProcess(), lake, log)
        assert ingested.counts["offset_commits"] == 2
        again, _ = cycle(InProcess(), lake, log)
        assert (again.outcome, again.positions, again.leader_epochs) == (
            "nothing new", ingested.positions, ingested.leader_epochs,
        )  # fmt: skip


def test_lake_without_checksums_and_leader_epochs_is_read_on_and_learns_them(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older versions stored no leader epochs, and no checksums over live clusters."""
    lake = new_lake(tmp_path / "lake")
    monkeypatch.setattr(ingest_job, "LastRead", lambda *row: _LastRead(*row[:3]))
    cycle(InProcess(), lake, log)
    monkeypatch.undo()
    ingested, _ = cycle(InProcess(), lake, log)
    assert ingested.positions is not None
    assert ingested.positions[0].tail_checksum is not None
    assert ingested.leader_epochs == (("__consumer_offsets", 0, 4),)
    _other_batch(log)
    with pytest.raises(LogMismatch, match="is not the one that was read"):
        cycle(InProcess(), lake, log)


_LastRead = ingest_job.LastRead


@pytest.mark.parametrize("committed", [True, False])
def test_interrupted_run_over_a_log_that_was_written_again(
    committed: bool, lake: Lake, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, commits(0, 8, "old", 4), commits(8, 2, "old", 4), commits(10, 2, "lost", 4))

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ingest_job, "_finish" if committed else "_write_history", killed)
    with pytest.raises(KeyboardInterrupt):
        cycle(InProcess(), lake, log)
    monkeypatch.undo()
    write(log, commits(0, 8, "old", 4), commits(8, 2, "old", 4), commits(10, 3, "new", 5))
    if committed:
        with pytest.raises(LogMismatch, match="contains the log offsets 10 to 12"):
            cycle(InProcess(), lake, log)
        return
    cycle(InProcess(), lake, log)
    assert current_run.unfinished_plan(lake, "ingest", ingest_job.plans.IngestPlan) is None
    assert {(row["group_id"], row["log_offset"]) for row in rows(lake, "offset_commits")} == {
        *(("old", at) for at in range(10)),
        *(("new", at) for at in range(10, 13)),
    }


def test_log_that_is_written_again_while_it_is_read_is_refused_by_the_next_run(
    lake: Lake, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run reads is compared with the end that the log had before: a change in between is found afterwards."""
    write(log, commits(0, 8, "old", 4), commits(8, 2, "old", 4), commits(10, 2, "lost", 4))
    finish = ingest_job._finish

    def rewritten(*arguments: Any) -> Any:
        write(log, commits(0, 8, "old", 4), commits(8, 2, "old", 4), commits(10, 2, "new", 5))
        return finish(*arguments)

    monkeypatch.setattr(ingest_job, "_finish", rewritten)
    ingest(InProcess, lake, LogAddress(folder=log), lambda _: None)
    monkeypatch.undo()
    with pytest.raises(LogMismatch, match="before log offset 12 is not the one that was read"):
        cycle(InProcess(), lake, log)
