"""A folder as a log: what it holds, and every way to cut it. The oracle writes it and reads it back."""

import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlake.log.disk import folder as log_folder
from offsetlake.log.disk.folder import describe, fetch, slices
from offsetlake.log.positions import SHARE_STATE_TOPIC, LogPartition, OffsetRange
from support.log.made_folders import PARTITION, batch, read, read_all, read_in_parts, rows_of, write
from support.long_cases import long_cases
from support.oracle.log_reader import read_log
from support.oracle.log_writer import batch_bytes
from support.oracle.random_logs import RandomLog, logs, random_log


@pytest.fixture(params=[(64 << 20, 8 << 20), (300, 8 << 20), (1000, 300), (1, 17)], ids=str)
def tiny(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices and chunks of many sizes."""
    monkeypatch.setattr(log_folder, "MAX_SLICE_BYTES", request.param[0])
    monkeypatch.setattr(log_folder, "CHUNK_BYTES", request.param[1])


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("seed", [0, *long_cases((1, 2))])
def test_log_is_union_of_its_slices(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    random_log(rng, 400, log_partitions=2, batches_per_segment=15).write(tmp_path)
    records = read_log(tmp_path)
    extent = describe(tmp_path)
    assert not extent.notes
    assert {where.partition for where in extent.ranges} == {r.log_partition for r in records}
    for where, held in extent.ranges.items():
        expected = [(r.log_offset, r.key, r.value) for r in records if r.log_partition == where.partition]
        assert read_all(tmp_path, where) == (expected, [])
        for _ in range(4):
            inner = sorted(rng.sample(range(held.start, held.end + 1), rng.randrange(1, 12)))
            bounds = [held.start, *inner, held.end]
            assert read_in_parts(tmp_path, bounds, where) == (expected, [])


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(log=logs(max_batches=12), size=st.integers(1, 2000), points=st.lists(st.integers(0, 60), max_size=4))
def test_random_log_is_union_of_its_slices(
    log: RandomLog, size: int, points: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not log.plans:
        return
    folder = tmp_path_factory.mktemp("log")
    log.write(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_folder, "MAX_SLICE_BYTES", size)
        patch.setattr(log_folder, "CHUNK_BYTES", 17 + size // 3)
        for where, held in describe(folder).ranges.items():
            batches = log.batches()[where.partition]
            assert held in [(0, batches[-1].last + 1), (batches[0].first, batches[-1].last + 1)]
            bounds = [0, *sorted(min(point, held.end) for point in points), held.end]
            assert read_in_parts(folder, bounds, where) == (rows_of(batches), [])


def test_slices_cover_each_byte_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_folder, "MAX_SLICE_BYTES", 1000)
    batches = [batch(3 * i) for i in range(100)]
    first, second = write(tmp_path, batches[:40], batches[40:])
    cut = slices(tmp_path, PARTITION, OffsetRange(0, 300))
    assert len(cut) > 6
    for path in (first, second):
        of_path = [piece for piece in cut if piece.path == str(path)]
        assert of_path[0].from_byte == 0
        assert all(a.from_byte + a.size == b.from_byte for a, b in pairwise(of_path))
        assert of_path[-1].from_byte + of_path[-1].size == path.stat().st_size
        assert all(800 < piece.size < 1200 for piece in of_path[:-1])
    assert [piece.offsets.start for piece in cut] == [0, *(piece.offsets.end for piece in cut[:-1])]


@pytest.mark.usefixtures("tiny")
def test_slice_starts_inside_batch(tmp_path: Path) -> None:
    batches = [batch(5 * i, 5) for i in range(20)]
    write(tmp_path, batches[:10], batches[10:])
    for start in (0, 1, 4, 5, 24, 49, 50, 51, 74, 99):
        rows, regions = read(tmp_path, OffsetRange(start, 100))
        assert (rows, regions) == (rows_of(batches)[start:], [])
        rows, regions = read(tmp_path, OffsetRange(0, start))
        assert (rows, regions) == (rows_of(batches)[:start], [])
    assert slices(tmp_path, PARTITION, OffsetRange(30, 30)) == []
    assert slices(tmp_path, PARTITION, OffsetRange(100, 200)) == []


@pytest.mark.usefixtures("tiny")
def test_gaps_between_and_before_segments(tmp_path: Path) -> None:
    batches = [batch(10, gap=2), batch(20), batch(50, gap=7), batch(80)]
    write(tmp_path, (5, batches[:2]), (40, batches[2:3]), (70, batches[3:]))
    assert describe(tmp_path).ranges == {PARTITION: (5, 83)}
    for bounds in ([0, 90], [5, 83], [5, 12, 14, 16, 25, 45, 53, 58, 65, 75, 83], list(range(5, 84))):
        assert read_in_parts(tmp_path, bounds) == (rows_of(batches), [])


def test_compressed_message_across_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_folder, "MAX_SLICE_BYTES", 1)
    batches = [batch(5 * i, 5, magic=i % 2, codec="gzip") for i in range(8)]  # each states its last offset only
    write(tmp_path, batches)
    assert len(slices(tmp_path, PARTITION, OffsetRange(0, 40))) > 4
    for bounds in ([0, 40], [0, 2, 17, 40], list(range(41))):
        assert read_in_parts(tmp_path, bounds) == (rows_of(batches), [])


@pytest.mark.usefixtures("tiny")
def test_batch_larger_than_chunk_is_read(tmp_path: Path) -> None:
    batches = [batch(0), batch(3, 3, size=30_000), batch(6), batch(9, 500), batch(509)]
    write(tmp_path, batches)
    assert read_all(tmp_path) == (rows_of(batches), [])


def test_chunks_have_about_the_configured_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_folder, "CHUNK_BYTES", 500)
    write(tmp_path, [batch(3 * i) for i in range(60)])
    (piece,) = slices(tmp_path, PARTITION, OffsetRange(0, 180))
    chunks = [found for found in fetch(piece) if isinstance(found, bytes)]
    assert b"".join(chunks) == Path(piece.path).read_bytes()
    assert len(chunks) > 10
    assert max(map(len, chunks)) <= 500


def test_an_empty_last_segment(tmp_path: Path) -> None:
    write(tmp_path, [batch(0), batch(3, gap=4)], (20, []))
    assert describe(tmp_path).ranges == {PARTITION: (0, 20)}
    assert read_all(tmp_path) == (rows_of([batch(0), batch(3)]), [])
    assert read(tmp_path, OffsetRange(10, 20)) == ([], [])
    write(tmp_path, (0, []), partition=LogPartition(SHARE_STATE_TOPIC, 3))
    assert describe(tmp_path).ranges[LogPartition(SHARE_STATE_TOPIC, 3)] == (0, 0)


def test_batches_appended_after_describe_are_not_read(tmp_path: Path) -> None:
    batches = [batch(0), batch(3), batch(6)]
    (path,) = write(tmp_path, batches[:2])
    held = describe(tmp_path).ranges[PARTITION]
    path.write_bytes(b"".join(map(batch_bytes, batches)) + b"torn")
    assert read(tmp_path, held) == (rows_of(batches[:2]), [])
    assert read(tmp_path, OffsetRange(held.end, 9)) == (rows_of(batches[2:]), [])


# --- a torn end ---


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_truncated_last_batch_is_not_read(codec: str, tmp_path: Path) -> None:
    batches = [batch(0), batch(3, gap=2), batch(8, codec=codec)]
    (path,) = write(tmp_path, batches)
    whole = path.read_bytes()
    last = len(batch_bytes(batches[2]))
    for torn in range(1, last):
        path.write_bytes(whole[: len(whole) - last + torn])
        extent = describe(tmp_path)
        assert extent.ranges == {PARTITION: (0, 8)}
        (note,) = extent.notes
        assert note == (
            f"{PARTITION}: the last {torn} bytes of {path.name} are not a complete batch; "
            "the log is read up to offset 8, and the rest in the next run after it is complete"
        )
        assert read_all(tmp_path) == (rows_of(batches[:2]), [])
    path.write_bytes(whole)
    assert describe(tmp_path).notes == []
    assert read(tmp_path, OffsetRange(8, 11)) == (rows_of(batches[2:]), [])


@pytest.mark.parametrize("fill", [b"\0", b"\xff", b"\x02"])
def test_last_batch_with_wrong_checksum_is_not_read(fill: bytes, tmp_path: Path) -> None:
    batches = [batch(0), batch(3), batch(6)]
    (path,) = write(tmp_path, batches)
    whole = path.read_bytes()
    last = len(batch_bytes(batches[2]))
    for missing in (2, 20, last - 17, last):  # the file is as long as it will be, its end is not there yet
        path.write_bytes(whole[:-missing] + fill * missing)
        extent = describe(tmp_path)
        assert extent.ranges == {PARTITION: (0, 6)}
        assert f"the last {last} bytes" in extent.notes[0]
        assert read_all(tmp_path) == (rows_of(batches[:2]), [])


def test_segment_without_complete_batch_is_empty(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [batch(30)])
    path.write_bytes(path.read_bytes()[:-1])
    assert describe(tmp_path).ranges == {PARTITION: (30, 30)}
    assert read_all(tmp_path) == ([], [])
