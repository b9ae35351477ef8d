"""What was synced through the journal is in the log again, whatever a crash of the machine left of the segments."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches.writer import Batch, record_batch
from offsetlake.log.address import LogAddress
from offsetlake.log.disk.segment_bytes import end_of
from offsetlake.log.positions import OffsetRange
from offsetlake.log.readiness import repair_after_crash
from offsetlake.log.writer import appender as appender_module
from offsetlake.log.writer import journal as journal_module
from offsetlake.log.writer import journaling as journaling_module
from offsetlake.log.writer.appender import Appender, LogInDoubt
from offsetlake.log.writer.appending import appending
from offsetlake.log.writer.journal import BLOCK, JOURNAL, Journal, JournalEntry, entries
from offsetlake.log.writer.recovery import recover
from support.log.made_folders import PARTITION
from support.oracle.log_reader import read_log

T = 1_700_000_000_000
PARTS, PART_BYTES = 3, 8 * BLOCK
"""A small journal: random writes fill it several times."""

some_entries = st.lists(
    st.builds(
        JournalEntry,
        st.sampled_from(["__consumer_offsets-0", "__consumer_offsets-49", "__transaction_state-7"]),
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**31 - 1),
        st.binary(max_size=700),
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture(autouse=True)
def small_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "PARTS", PARTS)
    monkeypatch.setattr(journaling_module, "PARTS", PARTS)
    monkeypatch.setattr(journal_module, "PART_BYTES", PART_BYTES)
    monkeypatch.setattr(journal_module, "_SIZE", BLOCK + PARTS * PART_BYTES)


def made(*numbers: int) -> Batch:
    """A batch of one record a number."""
    return record_batch(T, [(b"%d" % number, b"x" * 10) for number in numbers])


def journaled(folder: Path) -> Appender:
    recover(folder)
    return Appender(folder, lambda segment: end_of(segment.path, segment.base_offset)[0], journaled=True)


def write(folder: Path, records: list[list[JournalEntry]]) -> list[list[list[JournalEntry]]]:
    """Write records to a journal; return those of each of the last laps, which no later lap has overwritten."""
    journal, kept = Journal(folder), dict[int, list[list[JournalEntry]]]()
    for record in records:
        journal.write(journal.encode(record), len(record))
        kept.setdefault(journal.lap, []).append(record)
    journal.file.close()
    return [kept[lap] for lap in sorted(kept)[-PARTS:]]


def flat(laps: list[list[list[JournalEntry]]]) -> list[JournalEntry]:
    return [entry for lap in laps for record in lap for entry in record]


@settings(max_examples=50)
@given(st.lists(some_entries, max_size=40))
def test_last_laps_are_read_as_they_were_written(records: list[list[JournalEntry]]) -> None:
    with tempfile.TemporaryDirectory() as path:
        kept = write(Path(path), records)
        assert entries(Path(path)) == flat(kept)


@settings(max_examples=50)
@given(st.lists(some_entries, min_size=1, max_size=20), st.data())
def test_torn_last_record_is_ignored(records: list[list[JournalEntry]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        before = write(folder, records[:-1]) if records[:-1] else []
        untorn = (folder / JOURNAL).read_bytes() if before else b""
        with patch.object(journal_module, "randbits", lambda _: int.from_bytes(untorn[8:16], "big") if untorn else 1):
            kept = write(folder, records)
        whole = (folder / JOURNAL).read_bytes()
        untorn = untorn or whole[:BLOCK] + bytes(len(whole) - BLOCK)
        changed = [at for at in range(len(whole)) if whole[at] != untorn[at]]
        at = data.draw(st.integers(changed[0], changed[-1])) if changed else 0
        (folder / JOURNAL).write_bytes(whole[:at] + untorn[at:])
        found, all_ = entries(folder), flat(kept)
        without_last = all_[: -len(records[-1])]
        overlap = flat(before)
        assert found in (all_, without_last) or found == overlap[len(overlap) - len(found) :] != []


@settings(max_examples=150)
@given(st.lists(some_entries, min_size=2, max_size=30), st.data())
def test_flipped_bit_is_an_error_or_loses_the_last_record(
    records: list[list[JournalEntry]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        kept = write(folder, records)
        content = bytearray((folder / JOURNAL).read_bytes())
        used = [at for at in range(0, len(content), BLOCK) if any(content[at : at + BLOCK])]
        at = data.draw(st.sampled_from(used)) + data.draw(st.integers(0, 100) | st.integers(0, BLOCK - 1))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
        (folder / JOURNAL).write_bytes(content)
        all_ = flat(kept)
        try:
            found = entries(folder)
        except LogUnavailable as error:
            assert JOURNAL in str(error)  # noqa: PT017 - either outcome is right
        else:  # the oldest lap looks as if the next one had begun to overwrite it
            without_the_oldest_lap = [flat(kept[1:])] if len(kept) == PARTS else []
            assert found in (all_, all_[: -len(records[-1])], *without_the_oldest_lap)


class Disk:
    """What a crash of the machine leaves: of each file what was synced, and of the rest what the random bits say."""

    def __init__(self, folder: Path, random: Random) -> None:
        self._folder, self._random = folder, random
        self._synced: dict[int, bytes] = {}  # content by inode

    @contextmanager
    def watched(self) -> Iterator[None]:
        fdatasync = os.fdatasync

        def sync(handle: int) -> None:
            content = Path(f"/proc/self/fd/{handle}").read_bytes()
            fdatasync(handle)
            inode = os.fstat(handle).st_ino
            if len(content) >= len(self._synced.get(inode, b"")):  # another thread may have synced more meanwhile
                self._synced[inode] = content

        with patch.object(os, "fdatasync", sync):
            yield

    def crash(self, copy: Path) -> None:
        """Copy the folder as it is on the disk after a crash."""
        copy.mkdir()
        for path in sorted(self._folder.rglob("*")):
            target = copy / path.relative_to(self._folder)
            if path.is_dir():
                target.mkdir()
                continue
            written, synced = path.read_bytes(), self._synced.get(path.stat().st_ino, b"")
            is_journal = path.name == JOURNAL  # it is created with an fsync
            target.write_bytes((synced or written) if is_journal else synced + self._some(written[len(synced) :]))

    def _some(self, unsynced: bytes) -> bytes:
        """Return bytes of which blocks are missing at random: they are zeros, or the file is shorter."""
        blocks = [unsynced[begin : begin + 64] for begin in range(0, len(unsynced), 64)]
        kept = blocks[: self._random.randint(0, len(blocks))]
        return b"".join(block if self._random.random() < 0.6 else bytes(len(block)) for block in kept)


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), min_size=1, max_size=40), st.integers())
def test_all_that_was_synced_is_there_after_a_crash_of_the_machine(rounds: list[list[int]], seed: int) -> None:
    with tempfile.TemporaryDirectory() as path, patch.object(appender_module, "SEGMENT_BYTES", 2000):
        folder, copy = Path(path, "log"), Path(path, "copy")
        folder.mkdir()
        expected: list[tuple[int, int, bytes | None]] = []
        disk = Disk(folder, Random(seed))
        with disk.watched():
            appender = journaled(folder)
            for number, partitions in enumerate(rounds):
                acknowledged = len(expected)
                is_last = number == len(rounds) - 1
                for partition in {*partitions} if is_last else partitions:  # a hole between two batches is quarantined
                    (first,) = appender.append(partition, [made(number)])
                    expected.append((partition, first, b"%d" % number))
                if not is_last:
                    appender.sync()
            disk.crash(copy)
            appender.close()
        for _ in range(2):  # also if it is interrupted before the journal is removed
            journal = (copy / JOURNAL).read_bytes() if (copy / JOURNAL).exists() else None
            recover(copy)
            if journal is not None:
                (copy / JOURNAL).write_bytes(journal)
        recover(copy)
        found = [(record.log_partition, record.log_offset, record.key) for record in read_log(copy)]
        assert {*expected[:acknowledged]} <= {*found} <= {*expected}
        assert len(found) == len({*found})
        with appending(copy, "next") as again:
            assert [again.end(partition) for partition in range(5)] == [
                sum(partition == each for each, _, _ in found) for partition in range(5)
            ]


def crashed(folder: Path) -> Path:
    """A log whose segment has lost its only batch, which is in the journal; return the segment."""
    folder.mkdir()
    appender = journaled(folder)
    appender.append(0, [made(1, 2)])
    appender.sync()
    segment = folder / str(PARTITION) / f"{0:020}.log"
    kept = folder.with_suffix(".kept")
    shutil.copytree(folder, kept)
    appender.close()
    shutil.rmtree(folder)
    kept.rename(folder)
    os.truncate(segment, 0)
    return segment


def test_journal_is_removed_when_the_log_is_closed(tmp_path: Path) -> None:
    appender = journaled(tmp_path)
    appender.append(0, [made(1)])
    appender.sync()
    assert (tmp_path / JOURNAL).exists()
    appender.close()
    assert [path.name for path in tmp_path.iterdir()] == [str(PARTITION)]


def test_log_of_a_server_that_crashed_is_repaired_before_it_is_read(tmp_path: Path) -> None:
    crashed(tmp_path / "log")
    log = LogAddress(folder=tmp_path / "log")
    assert log.describe().ranges == {PARTITION: OffsetRange(0, 0)}
    repair_after_crash(log)
    assert log.describe().ranges == {PARTITION: OffsetRange(0, 2)}
    assert [record.key for record in read_log(tmp_path / "log")] == [b"1", b"2"]
    assert not (tmp_path / "log" / JOURNAL).exists()


@pytest.mark.parametrize("how", ["another batch", "missing", "shorter"])
def test_changes_by_others_since_the_crash_are_refused(tmp_path: Path, how: str) -> None:
    segment = crashed(tmp_path / "log")
    if how == "another batch":
        segment.write_bytes(made(9).data)
    elif how == "missing":
        segment.unlink()
    else:
        journal = tmp_path / "log" / JOURNAL
        content = journal.read_bytes()
        with patch.object(journal_module, "randbits", lambda _: int.from_bytes(content[8:16], "big")):
            (tmp_path / "other").mkdir()
            write(tmp_path / "other", [[JournalEntry(str(PARTITION), 0, 500, bytes(made(1).data))]])
        journal.write_bytes((tmp_path / "other" / JOURNAL).read_bytes())
    with pytest.raises(LogUnavailable, match="was changed since the server that wrote it ended") as raised:
        recover(tmp_path / "log")
    assert "remove the journal" in str(raised.value)
    (tmp_path / "log" / JOURNAL).unlink()
    recover(tmp_path / "log")


def test_segment_that_was_deleted_by_maintenance_is_not_restored(tmp_path: Path) -> None:
    segment = crashed(tmp_path / "log")
    segment.unlink()
    segment.with_name(f"{2:020}.log").touch()
    recover(tmp_path / "log")
    assert not segment.exists()


def test_leader_epoch_may_have_changed(tmp_path: Path) -> None:
    segment = crashed(tmp_path / "log")
    batch = bytearray(made(1, 2).data)
    batch[12:16] = (7).to_bytes(4, "big")
    segment.write_bytes(batch)
    recover(tmp_path / "log")
    assert segment.read_bytes() == batch


def test_removed_journal_is_noticed_before_a_write_is_acknowledged(tmp_path: Path) -> None:
    for check in ("sync", "check_files"):
        (folder := tmp_path / check).mkdir()
        appender = journaled(folder)
        appender.append(0, [made(1)])
        appender.sync()
        (folder / JOURNAL).unlink()
        appender.append(0, [made(2)])
        with pytest.raises(LogInDoubt):
            getattr(appender, check)()
        appender.close()


def test_segment_that_cannot_be_synced_in_the_background_stops_all_writes(tmp_path: Path) -> None:
    fdatasync = os.fdatasync

    def fails(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().suffix == ".log":
            raise OSError(5, os.strerror(5))
        fdatasync(handle)

    def write_on() -> None:
        for number in range(1000):
            appender.append(0, [made(number)])
            appender.sync()

    appender = journaled(tmp_path)
    with patch.object(os, "fdatasync", fails), pytest.raises(LogInDoubt):
        write_on()
    appender.close()
    assert (tmp_path / JOURNAL).exists(), "the next start needs it"


def test_log_without_space_for_a_journal_is_synced_by_partition(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: int) -> None:
        raise OSError(28, os.strerror(28))

    with patch.object(os, "posix_fallocate", full):
        appender = journaled(tmp_path)
        for number in range(3):
            appender.append(0, [made(number)])
            appender.sync()
    assert [message for message in caplog.messages if "has no journal: No space left on device" in message] != []
    assert len(caplog.messages) == 1
    appender.close()
    assert len(read_log(tmp_path)) == 3


def test_round_that_is_larger_than_a_part_is_synced_by_partition(tmp_path: Path) -> None:
    appender = journaled(tmp_path)
    appender.append(0, [made(*range(1000))])
    appender.append(1, [made(1)])
    appender.sync()
    assert entries(tmp_path) == []
    appender.append(1, [made(2)])
    appender.sync()
    assert [entry.partition for entry in entries(tmp_path)] == ["__consumer_offsets-1"]
    appender.close()


@pytest.mark.parametrize("content", [b"", b"OLJ2", bytes(BLOCK)])
def test_file_that_is_no_journal_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / JOURNAL).write_bytes(content)
    with pytest.raises(LogUnavailable, match="is damaged at byte 0"):
        recover(tmp_path)
