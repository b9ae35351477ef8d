"""What is appended stands in the log: whole, in order, behind what was there; what failed is not in it."""

import errno
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from offsetlake.errors import LogBusy, LogUnavailable
from offsetlake.kafka.batches.writer import Batch, record_batch
from offsetlake.log.disk.folder import describe
from offsetlake.log.positions import OffsetRange
from offsetlake.log.writer import appender as appender_module
from offsetlake.log.writer.appender import Appender, LogInDoubt
from offsetlake.log.writer.appending import appending
from offsetlake.log.writer.recovery import recover
from support.broker.tools import dump_log
from support.log.made_folders import PARTITION, batch, read_all, write
from support.oracle.encoders import offset_key, offset_value
from support.oracle.log_reader import read_log
from support.oracle.log_writer import batch_bytes

T = 1_700_000_000_000


def made(*numbers: int, size: int = 10) -> Batch:
    """A batch of one record a number."""
    return record_batch(T, [(b"%d" % number, b"x" * size) for number in numbers])


def keys(folder: Path) -> list[tuple[int, int, bytes | None]]:
    return [(record.log_partition, record.log_offset, record.key) for record in read_log(folder)]


def segments(folder: Path, partition: int = 0) -> list[int]:
    return [int(path.stem) for path in sorted((folder / f"__consumer_offsets-{partition}").glob("*.log"))]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Appender]:
    with appending(tmp_path, "test") as appender:
        yield appender


def test_offsets_go_on_in_each_partition(tmp_path: Path) -> None:
    write(tmp_path, [batch(0, 3), batch(3, 4, gap=2)])
    with appending(tmp_path, "test") as appender:
        assert (appender.end(0), appender.end(7)) == (9, 0)
        assert appender.append(0, [made(1, 2), made(3)]) == [9, 11]
        assert appender.append(7, [made(4)]) == [0]
        assert appender.append(0, [made(5)]) == [12]
        assert appender.end(0) == 13
        appender.sync()
    assert keys(tmp_path)[7:] == [(0, 9, b"1"), (0, 10, b"2"), (0, 11, b"3"), (0, 12, b"5"), (7, 0, b"4")]
    assert segments(tmp_path) == [0]
    with appending(tmp_path, "test") as appender:
        assert appender.append(0, [made(6)]) == [13]


@pytest.mark.slow
@pytest.mark.broker
def test_kafka_reads_what_was_appended(tmp_path: Path) -> None:
    value = offset_value(3, 42, commit_timestamp=T, metadata="md")
    with appending(tmp_path, "test") as appender:
        appender.append(3, [record_batch(T, [(offset_key("g", "t", 7), value), (offset_key("g", "t", 8), None)])])
        appender.append(3, [record_batch(T + 1, [(offset_key("h", "t", 7), None)])])
    records = dump_log(tmp_path)
    assert [(r.offset, r.timestamp, r.is_valid, r.tombstone) for r in records] == [
        (0, T, True, False),
        (1, T, True, True),
        (2, T + 1, True, True),
    ]
    assert {(r.log_partition, r.producer_id, r.producer_epoch, r.is_transactional) for r in records} == {
        (3, -1, -1, False)
    }
    assert [r.key and r.key["data"] for r in records] == [
        {"group": group, "topic": "t", "partition": partition} for group, partition in [("g", 7), ("g", 8), ("h", 7)]
    ]
    assert records[0].payload == {
        "version": "3",
        "data": {"offset": 42, "leaderEpoch": -1, "metadata": "md", "commitTimestamp": T},
    }


def test_segments_roll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender_module, "SEGMENT_BYTES", 200)
    with appending(tmp_path, "test") as appender:
        for number in range(0, 30, 2):
            appender.append(0, [made(number, number + 1)])
        appender.sync()
    assert len(segments(tmp_path)) > 3
    assert keys(tmp_path) == [(0, number, b"%d" % number) for number in range(30)]
    assert describe(tmp_path).ranges == {PARTITION: OffsetRange(0, 30)}
    rows, corrupt = read_all(tmp_path)
    assert [(offset, key) for offset, key, _ in rows] == [(number, b"%d" % number) for number in range(30)]
    assert not corrupt
    with appending(tmp_path, "test") as appender:
        assert appender.end(0) == 30
    sizes = [path.stat().st_size for path in sorted((tmp_path / str(PARTITION)).glob("*.log"))]
    assert all(200 <= size < 400 for size in sizes[:-1])


def test_the_segment_before_is_on_disk_when_the_next_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender_module, "SEGMENT_BYTES", 1)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    with appending(tmp_path, "test") as appender:
        appender.append(0, [made(0)])
        assert not synced
        appender.append(0, [made(1)])
        assert len(synced) == 1
        appender.sync()
        appender.sync()
        assert len(synced) == 2, "only what is not yet on disk"


WHOLE, LAST = batch(0, 3), batch(3, 2)
TAIL = batch_bytes(LAST)


@settings(max_examples=len(TAIL), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(cut=st.integers(1, len(TAIL) - 1), behind=st.binary(max_size=30))
@example(cut=1, behind=b"")
@example(cut=61, behind=b"")
@example(cut=len(TAIL) - 1, behind=b"")
def test_incomplete_last_batch_is_truncated_and_kept(
    cut: int, behind: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    (segment,) = write(folder, [WHOLE])
    torn = TAIL[:cut] + (b"\xff" * 20 + behind if behind else b"")
    segment.write_bytes(batch_bytes(WHOLE) + torn)
    with appending(folder, "test") as appender:
        assert appender.append(0, [made(7)]) == [3]
    assert [(offset, key) for _, offset, key in keys(folder)][2:] == [(2, b"key0002"), (3, b"7")]
    (kept,) = segment.parent.glob("*.torn")
    assert kept.name.startswith(f"{0:020}.3.")
    assert kept.read_bytes() == torn
    assert recover(folder) == {}


def test_every_partition_is_cut_behind_its_last_whole_batch(tmp_path: Path) -> None:
    for at, tail in enumerate((b"", b"torn", TAIL[:-1])):
        (segment,) = write(tmp_path, [WHOLE], partition=PARTITION._replace(partition=at))
        segment.write_bytes(batch_bytes(WHOLE) + tail)
    assert recover(tmp_path) == {
        PARTITION._replace(partition=1): 4,
        PARTITION._replace(partition=2): len(TAIL) - 1,
    }
    assert set(describe(tmp_path).ranges.values()) == {OffsetRange(0, 3)}


def test_bytes_torn_at_the_same_offset_again_are_kept_too(tmp_path: Path) -> None:
    (segment,) = write(tmp_path, [WHOLE])
    for torn in (b"first", b"second"):
        segment.write_bytes(batch_bytes(WHOLE) + torn)
        recover(tmp_path)
    assert sorted(path.read_bytes() for path in segment.parent.glob("*.torn")) == [b"first", b"second"]


@contextmanager
def room_for(path: Path, size: int) -> Iterator[None]:
    """Limit files to the size of `path` plus `size`: the kernel writes what fits, and fails the rest."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((path.stat().st_size if path.exists() else 0) + size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 60, 61, 100])
def test_nothing_of_a_write_that_failed_is_in_the_log(room: int, tmp_path: Path, log: Appender) -> None:
    log.append(0, [made(1)])
    segment = tmp_path / str(PARTITION) / f"{0:020}.log"
    with room_for(segment, room), pytest.raises(LogUnavailable, match=r"File too large.*None of the batches"):
        log.append(0, [made(2), made(3)])
    assert describe(tmp_path).ranges == {PARTITION: OffsetRange(0, 1)}
    assert log.end(0) == 1
    assert log.append(0, [made(4)]) == [1], "there is room again"
    log.sync()
    assert keys(tmp_path) == [(0, 0, b"1"), (0, 1, b"4")]


def test_a_segment_that_cannot_begin(tmp_path: Path, log: Appender, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append(0, [made(1)])
    monkeypatch.setattr(appender_module, "SEGMENT_BYTES", 1)
    with monkeypatch.context() as patched:
        patched.setattr(appender_module, "FileIO", _no_more_files)
        for _ in range(2):
            with pytest.raises(LogUnavailable, match="Too many open files"):
                log.append(0, [made(2)])
        log.sync()
    assert log.append(0, [made(3)]) == [1]
    assert keys(tmp_path) == [(0, 0, b"1"), (0, 1, b"3")]


def _no_more_files(*_: object) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


class Dying(FileIO):
    """A file on a disk that takes a part of a write, and then nothing any more."""

    def write(self, data: Any) -> int:
        if self.tell():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().write(bytes(data)[:70])

    def truncate(self, size: int | None = None) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_failed_fsync_raises_log_in_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be taken back may be in the log: nothing goes behind it."""
    with monkeypatch.context() as patched, appending(tmp_path, "test") as appender:
        patched.setattr(appender_module, "FileIO", Dying)
        with pytest.raises(LogInDoubt, match="cannot be written: Input/output error"):
            appender.append(0, [made(1)])
        patched.undo()
        assert_in_doubt(appender)
    with appending(tmp_path, "test") as appender:
        assert appender.append(0, [made(2)]) == [0]
    assert keys(tmp_path) == [(0, 0, b"2")]


def test_a_disk_that_is_full_from_the_start(tmp_path: Path) -> None:
    refused = pytest.raises(LogUnavailable, match="cannot be written: File too large")
    with room_for(tmp_path / "none", 0), refused, appending(tmp_path, "test"):
        pass
    with appending(tmp_path, "test"):
        pass


def assert_in_doubt(appender: Appender) -> None:
    """Nothing is written any more, and nothing said to be on the disk."""
    for ask in (lambda: appender.append(0, [made(9)]), lambda: appender.append(8, [made(9)]), appender.sync):
        with pytest.raises(LogInDoubt):
            ask()


def test_failed_fsync_is_not_repeated(log: Appender, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append(0, [made(1)])
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", _no_more_files)
        with pytest.raises(LogInDoubt, match=str(PARTITION)):
            log.sync()
    assert_in_doubt(log)


def test_a_full_segment_that_does_not_sync_is_not_followed_by_another(
    tmp_path: Path, log: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender_module, "SEGMENT_BYTES", 1)
    log.append(0, [made(1)])
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", _no_more_files)
        with pytest.raises(LogInDoubt, match=str(PARTITION)):
            log.append(0, [made(2)])
    assert_in_doubt(log)
    assert segments(tmp_path) == [0]


@pytest.mark.parametrize("there", [True, False], ids=["a segment", "a partition"])
def test_a_name_that_may_not_be_on_the_disk_is_not_written_to(
    tmp_path: Path, log: Appender, monkeypatch: pytest.MonkeyPatch, *, there: bool
) -> None:
    if there:
        (tmp_path / str(PARTITION)).mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", _no_more_files)
        with pytest.raises(LogInDoubt):
            log.append(0, [made(1)])
    assert_in_doubt(log)


@pytest.mark.parametrize("there", [True, False], ids=["a segment", "a partition"])
def test_a_folder_that_cannot_be_opened_is_left_as_it_was(
    tmp_path: Path, log: Appender, monkeypatch: pytest.MonkeyPatch, *, there: bool
) -> None:
    """A name that is there already would not be brought to the disk the next time."""
    folder = tmp_path / str(PARTITION)
    if there:
        folder.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", _no_more_files)
        with pytest.raises(LogUnavailable, match="Too many open files"):
            log.append(0, [made(1)])
    assert [*folder.iterdir()] == [] if there else not folder.exists()
    assert log.append(0, [made(2)]) == [0]
    log.sync()


def test_one_appender_at_a_time(tmp_path: Path, log: Appender) -> None:
    log.append(0, [made(1)])
    with pytest.raises(LogBusy, match=r"test \(process \d+\) writes to the log"), appending(tmp_path, "other"):
        pass
    assert keys(tmp_path) == [(0, 0, b"1")]


def test_a_folder_where_a_partition_cannot_be_made(tmp_path: Path, log: Appender) -> None:
    (tmp_path / str(PARTITION)).write_text("a file")
    with pytest.raises(LogUnavailable):
        log.append(0, [made(1)])


def _remove_all(folder: Path) -> None:
    shutil.rmtree(folder)


def _remove_segment(folder: Path) -> None:
    next(folder.glob("*-0/*.log")).unlink()


def _move_away(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


def _replace(folder: Path) -> None:
    _move_away(folder)
    shutil.copytree(folder.with_name("moved"), folder)


def _replace_partition(folder: Path) -> None:
    partition = folder / "__consumer_offsets-0"
    partition.rename(folder / "moved")
    shutil.copytree(folder / "moved", partition)


@pytest.mark.parametrize(
    ("change", "at_sync"),
    [(_remove_all, True), (_remove_segment, True), (_move_away, False), (_replace, False), (_replace_partition, False)],
)
def test_removed_or_replaced_log_is_in_doubt(tmp_path: Path, change: Callable[[Path], None], *, at_sync: bool) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    with appending(folder, "test") as appender:
        appender.append(0, [made(1)])
        appender.sync()
        appender.check_files()
        change(folder)
        if at_sync:
            appender.append(0, [made(2)])
            with pytest.raises(LogInDoubt, match="was removed or replaced"):
                appender.sync()
        else:
            with pytest.raises(LogInDoubt, match=r"cannot be written: .*(removed|replaced|No such file)"):
                appender.check_files()
        for again in (lambda: appender.append(0, [made(3)]), appender.sync, appender.check_files):
            with pytest.raises(LogInDoubt):
                again()


def test_a_log_in_its_place_is_not_in_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are begun and deleted, and looked at in turn."""
    monkeypatch.setattr(appender_module, "SEGMENT_BYTES", 1)
    monkeypatch.setattr(appender_module, "MAX_CHECKED_SEGMENTS", 2)
    with appending(tmp_path, "test") as appender:
        for number in range(12):
            appender.append(number % 5, [made(number)])
            appender.sync()
            appender.check_files()
        (tmp_path / "__consumer_offsets-0" / f"{0:020}.log").unlink()

        def look_at_all() -> None:
            for _ in range(3):
                appender.check_files()

        look_at_all()
        (tmp_path / "__consumer_offsets-4").rename(tmp_path / "moved")
        with pytest.raises(LogInDoubt):
            look_at_all()
