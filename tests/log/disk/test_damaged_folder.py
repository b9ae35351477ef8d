"""A damaged folder: every good batch is read, every other byte is told once, wherever it is cut."""

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlake.kafka.batches.reader import CorruptRegion
from offsetlake.log.disk import folder as log_folder
from offsetlake.log.disk.folder import describe, fetch, slices
from offsetlake.log.positions import OffsetRange
from support.log.made_folders import PARTITION, batch, read, read_all, read_in_parts, rows_of, write
from support.oracle.log_writer import Batch, batch_bytes


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


# What can happen to a batch, by name; none of them is a batch any more.
HARM: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda data: bytes(len(data)),
    "ones": lambda data: b"\xff" * len(data),
    "junk": lambda data: random.Random(5).randbytes(len(data)),
    "cut": lambda data: data[:-5],
    "cut in the header": lambda data: data[:40],
    "negative length": lambda data: data[:8] + b"\xff" + data[9:],
    "long length": lambda data: data[:8] + struct.pack(">i", 2**31 - 1) + data[12:],
    "length of two": lambda data: data[:8] + struct.pack(">i", 2 * len(data) - 12) + data[12:],
    "length of three": lambda data: data[:8] + struct.pack(">i", 3 * len(data) - 12) + data[12:],
    "short length": lambda data: data[:8] + struct.pack(">i", 49) + data[12:],
    "magic": lambda data: data[:16] + b"\3" + data[17:],
    "old magic": lambda data: data[:16] + b"\1" + data[17:],
    "negative offset": lambda data: b"\xff" + data[1:],
    "checksum": flipped(18),
    "attributes": flipped(22),
    "last offset delta": flipped(24),
    "records": flipped(70),
    "offset and records": lambda data: bytes(8) + flipped(70)(data)[8:],
    "offset and last offset delta": lambda data: bytes(8) + data[8:23] + b"\x7f" + data[24:],
    "last byte": lambda data: data[:-1] + b"\7",
}


@pytest.fixture(params=[(64 << 20, 8 << 20), (300, 500), (1, 61)], ids=str)
def tiny(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices and chunks of many sizes."""
    monkeypatch.setattr(log_folder, "MAX_SLICE_BYTES", request.param[0])
    monkeypatch.setattr(log_folder, "CHUNK_BYTES", request.param[1])


def write_bytes(folder: Path, *segments: tuple[int, list[bytes]]) -> None:
    paths = write(folder, *((base, []) for base, _ in segments))
    for path, (_, pieces) in zip(paths, segments, strict=True):
        path.write_bytes(b"".join(pieces))


def told(regions: list[CorruptRegion]) -> bytes:
    return b"".join(region.data for region in regions)


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("harm", HARM)
def test_damaged_batch_affects_no_other(harm: str, tmp_path: Path) -> None:
    batches = [batch(4 * i, gap=1) for i in range(16)]
    whole = [batch_bytes(each) for each in batches]
    for hurt in (0, 1, 7, 8, 9, 14):  # first, middle and last of a segment, and before the last of all
        pieces = [HARM[harm](data) if i == hurt else data for i, data in enumerate(whole)]
        write_bytes(tmp_path, (0, pieces[:9]), (36, pieces[9:]))
        good = [each for i, each in enumerate(batches) if i != hurt]
        rows, regions = read_all(tmp_path)
        assert rows == rows_of(good)
        assert told(regions) == pieces[hurt]
        before = max(4 * hurt, 0)
        assert all(before <= region.log_offset < before + 4 for region in regions)
        assert all(region.reason for region in regions)
        for bounds in ([0, before, 64], [0, before + 1, 64], [*range(0, 64, 5), 64]):
            rows, regions = read_in_parts(tmp_path, bounds)
            assert (rows, told(regions)) == (rows_of(good), pieces[hurt])


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    "junk", [b"\0" * 100, b"\xff" * 100, b"junk", bytes(random.Random(3).randbytes(3000))], ids=len
)
def test_junk_at_the_end_of_a_segment_that_is_not_the_last(junk: bytes, tmp_path: Path) -> None:
    batches = [batch(3 * i) for i in range(6)]
    whole = [batch_bytes(each) for each in batches]
    for following in (9, 12):  # the offset the next segment begins at: just behind, or behind a gap
        for old in (tmp_path / str(PARTITION)).glob("*"):
            old.unlink()
        moved = [batch(following + 3 * i) for i in range(3)]
        write_bytes(tmp_path, (0, [*whole[:3], junk]), (following, list(map(batch_bytes, moved))))
        rows, regions = read_all(tmp_path)
        assert rows == rows_of(batches[:3] + moved)
        assert told(regions) == junk
        assert {region.log_offset for region in regions} == {9}
        assert f"of {PARTITION}/{0:020d}.log: " in regions[0].reason


@pytest.mark.usefixtures("tiny")
def test_segment_of_junk_is_corrupt(tmp_path: Path) -> None:
    junk = random.Random(1).randbytes(5000)
    write_bytes(tmp_path, (0, [batch_bytes(batch(0))]), (3, [junk]), (30, [batch_bytes(batch(30))]))
    rows, regions = read_all(tmp_path)
    assert rows == rows_of([batch(0), batch(30)])
    assert (told(regions), {region.log_offset for region in regions}) == (junk, {3})
    rows, regions = read_in_parts(tmp_path, list(range(34)))
    assert (rows, told(regions)) == (rows_of([batch(0), batch(30)]), junk)


def test_reported_damage_is_not_reported_again(tmp_path: Path) -> None:
    """Each run reads on from where the last one ended, in a segment that is damaged before that."""
    whole = [batch_bytes(batch(3 * i)) for i in range(8)]
    whole[2] = bytes(len(whole[2]))
    write_bytes(tmp_path, (0, whole[:5]))
    assert told(read_all(tmp_path)[1]) == whole[2]
    write_bytes(tmp_path, (0, whole))
    assert describe(tmp_path).ranges == {PARTITION: (0, 24)}
    assert read(tmp_path, OffsetRange(15, 24)) == (rows_of([batch(15), batch(18), batch(21)]), [])


def test_damaged_last_batch_is_reported_when_others_follow(tmp_path: Path) -> None:
    whole = [batch_bytes(batch(3 * i)) for i in range(4)]
    whole[2] = HARM["records"](whole[2])
    write_bytes(tmp_path, (0, whole[:3]))
    extent = describe(tmp_path)
    assert extent.ranges == {PARTITION: (0, 6)}
    assert f"the last {len(whole[2])} bytes" in extent.notes[0]
    assert read_all(tmp_path) == (rows_of([batch(0), batch(3)]), [])
    write_bytes(tmp_path, (0, whole))
    assert describe(tmp_path).ranges == {PARTITION: (0, 12)}
    rows, regions = read(tmp_path, OffsetRange(6, 12))
    assert rows == rows_of([batch(9)])
    assert (told(regions), [region.log_offset for region in regions]) == (whole[2], [6])


@pytest.mark.parametrize("wrong", [0, 1, 2**40, 2**62])
@pytest.mark.parametrize("hurt", [1, 5, 10])
@pytest.mark.parametrize("sizes", [(64 << 20, 8 << 20), (1, 600), (600, 500)])
def test_wrong_base_offset_affects_no_other_batch(
    wrong: int, hurt: int, sizes: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_folder, "MAX_SLICE_BYTES", sizes[0])
    monkeypatch.setattr(log_folder, "CHUNK_BYTES", sizes[1])
    batches = [batch(3 * i) for i in range(12)]
    whole = [batch_bytes(each) for each in batches]
    whole[hurt] = struct.pack(">q", wrong) + whole[hurt][8:]  # its checksum is still true
    write_bytes(tmp_path, (0, whole))
    assert describe(tmp_path).ranges == {PARTITION: (0, 36)}
    good = rows_of([each for i, each in enumerate(batches) if i != hurt])
    for bounds in ([0, 36], [0, 3 * hurt, 36], [0, 3 * hurt + 3, 36], [0, 17, 36]):
        rows, regions = read_in_parts(tmp_path, bounds)
        assert [row for row in rows if row in good] == good
        if hurt == 1 and wrong < 2:  # beside the first batch nobody can tell which of the two is wrong
            assert told(regions) in (b"", whole[hurt])
        else:
            assert (rows, told(regions)) == (good, whole[hurt])


@pytest.mark.slow
@pytest.mark.parametrize("count", range(3, 14))
def test_overlapping_batches_affect_no_other_in_any_slices(count: int, tmp_path: Path) -> None:
    batches = [batch(3 * i) for i in range(count)]
    whole = [batch_bytes(each) for each in batches]
    for hurt, wrong in ((count - 2, 2**40), (1, 0), (1, 1)):
        pieces = [*whole[:hurt], struct.pack(">q", wrong) + whole[hurt][8:], *whole[hurt + 1 :]]
        write_bytes(tmp_path, (0, pieces))
        good = rows_of([each for i, each in enumerate(batches) if i != hurt])
        for split in range(3 * count + 1):
            rows, _ = read_in_parts(tmp_path, [0, split, 3 * count])
            assert [row for row in sorted(set(rows)) if row in good] == good


def test_large_corrupt_region_is_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_folder, "MAX_REGION_BYTES", 1000)
    monkeypatch.setattr(log_folder, "CHUNK_BYTES", 500)
    junk = b"\xff" * 4500
    data = [batch_bytes(batch(0)), junk, batch_bytes(batch(9))]
    write_bytes(tmp_path, (0, data))
    (piece,) = slices(tmp_path, PARTITION, OffsetRange(0, 12))
    regions = [found for found in fetch(piece) if isinstance(found, CorruptRegion)]
    assert [len(region.data) for region in regions] == [1000, 1000, 1000, 1000, 500]
    start = len(data[0])
    assert regions[4].reason == (
        f"bytes {start + 4000} to {start + 4500} of {PARTITION}/{0:020d}.log: no record batch begins here"
    )


@pytest.mark.long
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_random_damage_affects_no_other_batch(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=3, max_size=10))
    batches: list[Batch] = []
    for count, gap in zip(sizes, data.draw(st.lists(st.integers(0, 2), min_size=10, max_size=10)), strict=False):
        batches.append(batch(batches[-1].last + 1 if batches else 0, count, gap=gap))
    harms = st.sampled_from(sorted(HARM)) | st.binary(max_size=80)
    hurt = data.draw(st.dictionaries(st.integers(0, len(batches) - 2), harms, max_size=4))
    pieces = [batch_bytes(each) for each in batches]
    for i, harm in hurt.items():
        pieces[i] = HARM[harm](pieces[i]) if isinstance(harm, str) else harm
    split = data.draw(st.integers(0, len(batches) - 1))
    segments = [(0, pieces[:split]), (batches[split].first, pieces[split:])] if split else [(0, pieces)]
    folder = tmp_path_factory.mktemp("log")
    write_bytes(folder, *segments)
    end = batches[-1].last + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_folder, "MAX_SLICE_BYTES", data.draw(st.integers(1, 1000)))
        patch.setattr(log_folder, "CHUNK_BYTES", data.draw(st.integers(61, 1000)))
        assert describe(folder).ranges == {PARTITION: (0, end)}
        good = rows_of([each for i, each in enumerate(batches) if i not in hurt])
        expected = b"".join(pieces[i] for i in sorted(hurt))
        for bounds in ([0, end], [0, *sorted(data.draw(st.lists(st.integers(0, end), max_size=4))), end]):
            rows, regions = read_in_parts(folder, bounds)
            assert rows == good
            assert told(regions) == expected
