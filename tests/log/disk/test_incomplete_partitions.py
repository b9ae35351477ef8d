"""What is missing in a partition is known by the checkpoints, indexes and snapshots that a broker keeps."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from offsetlake.log.disk.folder import describe
from offsetlake.log.positions import OFFSETS_TOPIC
from support.broker.broker import Broker
from support.broker.workload import bulk_commits, create_topic
from support.log.made_folders import PARTITION, batch, write


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A partition with three segments, of 30 log offsets."""
    write(tmp_path, [batch(0, 10)], [batch(10, 10)], [batch(20, 10)])
    return tmp_path


def incomplete(log: Path) -> list[str]:
    return [note for note in describe(log).notes if note.startswith("INCOMPLETE")]


def checkpoint(log: Path, name: str, offset: int) -> None:
    (log / name).write_text(f"0\n1\n{PARTITION.topic} {PARTITION.partition} {offset}\n")


def name_of(base: int, kind: str) -> str:
    return f"{PARTITION}/{base:020}.{kind}"


def test_files_that_agree_with_the_segments_are_no_evidence(log: Path) -> None:
    checkpoint(log, "recovery-point-offset-checkpoint", 20)
    checkpoint(log, "replication-offset-checkpoint", 30)
    (log / str(PARTITION) / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 30\n")
    (log / name_of(30, "snapshot")).write_bytes(b"")
    for base in (0, 10, 20):
        (log / name_of(base, "index")).write_bytes(struct.pack(">ii", 9, 1))
    assert incomplete(log) == []


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"])
def test_a_checkpoint_after_the_end(name: str, log: Path) -> None:
    checkpoint(log, name, 31)
    note = (
        f"INCOMPLETE: {PARTITION} ends at log offset 30, but according to the files of its broker it had records up to "
        "31: its last records are missing"
    )
    assert incomplete(log) == [note]


def test_a_leader_epoch_or_a_snapshot_after_the_end(log: Path) -> None:
    (log / str(PARTITION) / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 33\n")
    assert "up to 33" in incomplete(log)[0]
    (log / name_of(40, "snapshot")).write_bytes(b"")
    assert "up to 40" in incomplete(log)[0]


def test_the_last_segment_is_missing(log: Path) -> None:
    checkpoint(log, "replication-offset-checkpoint", 30)
    (log / name_of(20, "log")).unlink()
    assert "ends at log offset 20" in incomplete(log)[0]
    assert describe(log).missing == [(PARTITION, (20, 30))]


def test_the_first_segment_is_missing(log: Path) -> None:
    checkpoint(log, "log-start-offset-checkpoint", 5)
    assert incomplete(log) == []
    assert describe(log).ranges[PARTITION] == (5, 30), "the broker has deleted the records before"
    (log / name_of(0, "log")).unlink()
    note = (
        f"INCOMPLETE: {PARTITION} begins at log offset 10, but its log start offset in log-start-offset-checkpoint is "
        "5: its first segments are missing"
    )
    assert incomplete(log) == [note]
    assert describe(log).missing == [(PARTITION, (5, 10))]


@pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex"])
def test_a_segment_in_the_middle_is_missing(kind: str, log: Path) -> None:
    (log / name_of(10, kind)).write_bytes(b"")
    (log / name_of(10, "log")).unlink()
    assert incomplete(log) == [
        f"INCOMPLETE: {PARTITION}: the segment {10:020}.log is missing, of which an index is there"
    ]
    assert describe(log).missing == [(PARTITION, (10, 20))]
    (log / name_of(10, "log.deleted")).write_bytes(b"")
    assert incomplete(log) == [], "the broker was about to delete it"
    (log / name_of(10, f"{kind}.deleted")).write_bytes(b"")
    assert len(incomplete(log)) == 1, "what the broker deletes is what the log cleaner has replaced"


def test_a_segment_in_the_middle_is_cut(log: Path) -> None:
    segment = log / name_of(10, "log")
    (log / name_of(10, "index")).write_bytes(struct.pack(">iiii", 3, 50, 9, segment.stat().st_size - 1))
    assert incomplete(log) == []
    segment.write_bytes(b"")
    assert incomplete(log) == [f"INCOMPLETE: {PARTITION}: {10:020}.log is cut: its index refers to bytes after its end"]
    assert describe(log).missing == [(PARTITION, (10, 20))]


def test_all_segments_are_missing(log: Path) -> None:
    checkpoint(log, "replication-offset-checkpoint", 30)
    for base in (0, 10, 20):
        (log / name_of(base, "log")).unlink()
    assert incomplete(log) == [
        f"INCOMPLETE: {PARTITION} has no segment, but according to the files of its broker it had records up to 30"
    ]
    assert describe(log).missing == [(PARTITION, (0, 30))]


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
def test_the_folder_of_a_broker_is_complete(end: Callable[[Broker], None], tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    overrides = {"offsets.topic.segment.bytes": str(1 << 20), "offsets.topic.num.partitions": "1"}
    overrides["log.cleaner.backoff.ms"] = "1000000000"
    with Broker(tmp_path / "broker", overrides) as broker:
        create_topic(broker.bootstrap, "orders", 100)
        bulk_commits(broker.bootstrap, "orders", 2, 100, 250)
        shutil.copytree(broker.data_dir, tmp_path / "copy")
        assert incomplete(tmp_path / "copy") == []
        end(broker)
    extent = describe(broker.data_dir)
    assert [note for note in extent.notes if note.startswith("INCOMPLETE")] == []
    assert extent.absent == []
    busy = max((broker.data_dir).glob(f"{OFFSETS_TOPIC}-*"), key=lambda path: len([*path.glob("*.log")]))
    segments = sorted(busy.glob("*.log"))
    assert len(segments) > 2
    segments[1].unlink()
    assert incomplete(broker.data_dir) == [
        f"INCOMPLETE: {busy.name}: the segment {segments[1].name} is missing, of which an index is there"
    ]
    if end is Broker.stop:
        segments[-1].unlink()
        (busy / segments[-1].with_suffix(".index").name).unlink()
        (busy / segments[-1].with_suffix(".timeindex").name).unlink()
        assert any("its last records are missing" in note for note in incomplete(broker.data_dir))
