"""Record batches read by offset and time, of logs with all there can be in one, against plain Python over the same."""

import random
import struct
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise, product
from pathlib import Path

import pytest

from log.writer.test_appender import made
from offsetlake.errors import CorruptBatch
from offsetlake.log.disk import partition_reader, segment_index
from offsetlake.log.disk.partition_reader import OffsetOutOfRange, PartitionReader
from offsetlake.log.writer import appender as appender_module
from offsetlake.log.writer.appending import appending
from support.log.made_folders import PARTITION, batch, write
from support.oracle.log_reader import ABORT, LogRecord, read_log
from support.oracle.log_writer import Batch, batch_bytes, marker_batch
from support.oracle.random_logs import random_log

SEEDS = range(4)
MOST = (0, 1, 150, 700, 1 << 20)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large in life is small here, so that a small log has all cases."""
    monkeypatch.setattr(segment_index, "INTERVAL_BYTES", 300)
    monkeypatch.setattr(partition_reader, "CHUNK_BYTES", 500)
    monkeypatch.setattr(partition_reader, "PAUSE_SECONDS", 0)


def made_log(seed: int, folder: Path) -> list[Batch]:
    """One partition of some segments, with transactions, old formats, codecs and gaps."""
    log = random_log(random.Random(seed), 500, groups=3, log_partitions=1, batches_per_segment=15)
    log.write(folder)
    return log.batches()[0]


def folder_of(log: Path) -> Path:
    return log / str(PARTITION)


def began(batches: list[Batch]) -> dict[int, tuple[int, int, int]]:
    """Return for each producer with an open transaction its epoch, the first offset and the time of the last batch."""
    found: dict[int, tuple[int, int, int]] = {}
    for each in batches:
        if each.is_control:
            found.pop(each.producer_id, None)
        elif each.is_transactional:
            first = found[each.producer_id][1] if each.producer_id in found else each.first
            time = max((record.timestamp for record in each.records), default=-1)
            times = (each.append_timestamp, each.max_timestamp, time)
            found[each.producer_id] = each.producer_epoch, first, next(row for row in times if row is not None)
    return found


def transactions(batches: list[Batch]) -> tuple[int, list[tuple[int, int, int]]]:
    """The last stable offset behind these batches, and what was aborted: producer, first and last log offset."""
    began: dict[int, int] = {}
    aborted = []
    for each in batches:
        if each.is_control:
            first = began.pop(each.producer_id, None)
            if first is not None and (each.records[0].key or b"")[2:4] == ABORT.to_bytes(2):
                aborted.append((each.producer_id, first, each.last))
        elif each.is_transactional:
            began.setdefault(each.producer_id, each.first)
    return min(began.values(), default=batches[-1].last + 1), aborted


def pieces(segment: Path) -> Iterator[tuple[int, bytes]]:
    """The batches of a segment with the last log offset of each."""
    data = segment.read_bytes()
    while data:
        base, length = struct.unpack_from(">qi", data)
        yield base + (struct.unpack_from(">i", data, 23)[0] if data[16] == 2 else 0), data[: 12 + length]
        data = data[12 + length :]


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_batches_from_any_offset_on(tmp_path: Path, seed: int, committed: bool) -> None:
    batches = made_log(seed, tmp_path)
    reader = PartitionReader(folder_of(tmp_path))
    reader.refresh(batches[-1].last + 1)
    end = transactions(batches)[0] if committed else batches[-1].last + 1
    assert reader.stable_end(committed=committed) == end
    segments = [[*pieces(path)] for path in sorted(folder_of(tmp_path).glob("*.log"))]
    assert len(segments) > 5
    for offset in {at for each in batches for at in (each.first, each.last, each.last + 1)}:
        of_segment = next((of for of in segments if of[-1][0] >= offset), [])
        there = [(last, data) for last, data in of_segment if offset <= last < end]
        sizes = [*accumulate(len(data) for _, data in there)]
        for most, at_least_one in product(MOST, (False, True)):
            found = reader.read(offset, most, committed=committed, at_least_one=at_least_one)
            count = bisect_right(sizes, most) or (1 if there and at_least_one else 0)
            behind = there[count - 1][0] + 1 if count else offset
            assert found == (b"".join(data for _, data in there[:count]), behind), (offset, most)


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_as_the_log_grows(tmp_path: Path, seed: int) -> None:
    batches = made_log(seed, tmp_path)
    reader = PartitionReader(folder_of(tmp_path))
    offsets = [0, *(each.last + 1 for each in batches)]
    for number, last in enumerate(batches, 1):
        reader.refresh(last.last + 1)
        stable, aborted = transactions(batches[:number])
        assert reader.end == last.last + 1
        assert reader.stable_end(committed=True) == stable
        opened = {
            row.producer_id: (row.producer_epoch, row.first, row.last_timestamp) for row in reader.open_transactions()
        }
        assert opened == began(batches[:number])
        for first, behind in [*pairwise(offsets[: number + 1]), (0, reader.end), (offsets[number // 2], reader.end)]:
            found = [(of.producer_id, of.first, of.last) for of in reader.aborted(first, behind)]
            assert found == [of for of in aborted if of[2] >= first and of[1] < behind]
    assert aborted


def as_young(records: list[LogRecord], timestamp: int, end: int) -> tuple[int, int] | None:
    found = next((of for of in records if of.log_timestamp >= timestamp), None)
    return (found.log_timestamp, found.log_offset) if found and found.log_offset < end else None


@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_record_since_a_time(tmp_path: Path, seed: int) -> None:
    batches, records = made_log(seed, tmp_path), read_log(tmp_path)
    reader = PartitionReader(folder_of(tmp_path))
    reader.refresh(batches[-1].last + 1)
    times = {of.log_timestamp for of in records} - {-1}
    assert reader.max_timestamp == max(times)
    for time in {around for of in times for around in (of - 1, of, of + 1)}:
        for committed in (False, True):
            found = reader.first_since(time, committed=committed)
            assert (found and found[:2]) == as_young(records, time, reader.stable_end(committed=committed)), time


def test_leader_epochs(tmp_path: Path) -> None:
    write(tmp_path, [batch(0, partition_leader_epoch=3)], [batch(3, partition_leader_epoch=5)])
    reader = PartitionReader(folder_of(tmp_path))
    reader.refresh(6)
    assert (reader.start_epoch, reader.epoch) == (3, 5)
    ends = {epoch: reader.end_of_epoch(epoch, 5) for epoch in range(-2, 8)}
    none = (-1, -1)
    assert ends == {
        -2: none, -1: none, 0: (0, 0), 1: (1, 0), 2: (2, 0), 3: (3, 3), 4: (3, 3), 5: (5, 6), 6: none, 7: none,
    }  # fmt: skip
    later = {epoch: reader.end_of_epoch(epoch, 7) for epoch in range(5, 9)}
    assert later == {5: (5, 6), 6: (5, 6), 7: (7, 6), 8: none}, "the leader has written nothing in its epoch"


def test_missing_partition_is_empty(tmp_path: Path) -> None:
    reader = PartitionReader(folder_of(tmp_path))
    reader.refresh(0)
    assert (reader.start, reader.end, reader.stable_end(committed=True), reader.max_timestamp, reader.epoch) == (
        0,
        0,
        0,
        -1,
        -1,
    )
    assert reader.read(0, 100, committed=False, at_least_one=True) == (b"", 0)
    with pytest.raises(OffsetOutOfRange):
        reader.read(1, 100, committed=False, at_least_one=True)


def test_appended_headers_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender_module, "SEGMENT_BYTES", 400)
    reader, seen, at = PartitionReader(folder_of(tmp_path)), b"", 0
    with appending(tmp_path, "test") as appender:
        for number in range(40):
            appender.append(0, [made(number, size=50), made(number, number)])
            if number % 3:
                continue  # several since the last look
            reader.refresh(appender.end(0))
            while at < reader.end:
                data, at = reader.read(at, 200, committed=False, at_least_one=True)
                seen += data
    segments = sorted(folder_of(tmp_path).glob("*.log"))
    assert len(segments) > 5
    assert seen == b"".join(path.read_bytes() for path in segments)


def test_batches_after_end_are_not_read(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [batch(0), batch(3), batch(6)])
    reader = PartitionReader(folder_of(tmp_path))
    with path.open("ab") as file:
        file.write(b"a write that is under way")
    reader.refresh(6)
    assert reader.read(3, 1 << 20, committed=False, at_least_one=True) == (batch_bytes(batch(3)), 6)
    assert reader.read(6, 1 << 20, committed=False, at_least_one=True) == (b"", 6)
    with pytest.raises(OffsetOutOfRange):
        reader.read(7, 1 << 20, committed=False, at_least_one=True)


def test_deleted_offsets_are_out_of_range(tmp_path: Path) -> None:
    marker = marker_batch("ABORT", offset=1, timestamp=1, producer_id=7, producer_epoch=0)
    paths = write(tmp_path, [batch(0, 1, is_transactional=True, producer_id=7), marker], [batch(2)], [batch(5)])
    reader = PartitionReader(folder_of(tmp_path))
    reader.refresh(8)
    assert [of.first for of in reader.aborted(0, 8)] == [0]
    paths[0].unlink()
    with pytest.raises(FileNotFoundError):  # cut off since the last look
        reader.read(0, 1 << 20, committed=False, at_least_one=True)
    reader.refresh(8)
    assert reader.start == 2
    assert reader.aborted(0, 8) == []
    with pytest.raises(OffsetOutOfRange):
        reader.read(1, 1 << 20, committed=False, at_least_one=True)
    assert reader.read(2, 1 << 20, committed=False, at_least_one=True) == (batch_bytes(batch(2)), 5)


def transactional(offset: int, producer_id: int) -> Batch:
    return batch(offset, 1, is_transactional=True, producer_id=producer_id)


def ended(offset: int, producer_id: int) -> Batch:
    return marker_batch("ABORT", offset=offset, timestamp=1, producer_id=producer_id, producer_epoch=0)


def test_transaction_ended_in_deleted_segment_is_not_open(tmp_path: Path) -> None:
    """Nobody looked while its marker was there."""
    known = write(tmp_path, [batch(0), transactional(3, 7), transactional(4, 8)])
    reader = PartitionReader(folder_of(tmp_path))
    reader.refresh(5)
    assert reader.stable_end(committed=True) == 3
    unseen = write(tmp_path, [ended(5, 7)])
    write(tmp_path, [batch(6), transactional(9, 8), transactional(10, 9), ended(11, 8)], [batch(12)])
    for path in (*known, *unseen):
        path.unlink()
    reader.refresh(10)
    assert (reader.start, reader.stable_end(committed=True)) == (6, 9), "of producer 8, as it goes on"
    reader.refresh(15)
    assert reader.stable_end(committed=True) == 10
    assert [(of.producer_id, of.first, of.last) for of in reader.aborted(6, 15)] == [(8, 9, 11)]


def test_transaction_begun_in_deleted_segment_limits_last_stable_offset(tmp_path: Path) -> None:
    (gone, _) = write(tmp_path, [batch(0), transactional(3, 7)], [batch(4), transactional(7, 7), ended(8, 7)])
    reader = PartitionReader(folder_of(tmp_path))
    reader.refresh(8)
    gone.unlink()
    reader.refresh(8)
    assert (reader.start, reader.stable_end(committed=True)) == (4, 4)
    reader.refresh(9)
    assert reader.stable_end(committed=True) == 9
    assert [(of.producer_id, of.first, of.last) for of in reader.aborted(4, 9)] == [(7, 3, 8)]


@pytest.mark.parametrize(
    ("at", "byte"), [(16, 9), (8, 0x7F), (0, 0x40), (23, 0xFF)], ids=["magic", "length", "offset", "last offset"]
)
def test_damage(tmp_path: Path, at: int, byte: int) -> None:
    """What is before it and in other segments is read; at it there is an error, and no other batch in its place."""
    paths = write(tmp_path, [batch(0), batch(3), batch(6)], [batch(9)])
    data = bytearray(paths[0].read_bytes())
    data[len(batch_bytes(batch(0))) + at] = byte
    paths[0].write_bytes(data)
    reader = PartitionReader(folder_of(tmp_path))
    reader.refresh(12)
    assert reader.read(0, 1 << 20, committed=False, at_least_one=True) == (batch_bytes(batch(0)), 3)
    for offset in (3, 6, 8):
        with pytest.raises(CorruptBatch, match="no record batch begins"):
            reader.read(offset, 1 << 20, committed=False, at_least_one=True)
    assert reader.read(9, 1 << 20, committed=False, at_least_one=True) == (batch_bytes(batch(9)), 12)
