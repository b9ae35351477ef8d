"""`read_batches` on damaged logs: no other batch is lost, and every byte that is no batch is told."""

import random
import struct
from itertools import accumulate, pairwise

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from offsetlake.kafka.batches.reader import CorruptRegion, read_batches
from support.kafka.made_batches import ALL_FRAMES, Row, batches_of, oracle_rows, rows
from support.long_cases import long_cases
from support.oracle.log_writer import batch_bytes
from support.oracle.random_logs import RandomLog, logs


def accounted(data: bytes, good: list[bytes]) -> tuple[list[Row], list[CorruptRegion]]:
    """Reads damaged bytes; asserts that the rows of all `good` batches are there, unchanged and in order."""
    records, corrupt = read_batches(data)
    found = rows(records)
    expected = [row for batch in good for row in oracle_rows(batch)]
    assert [row for row in found if row in expected] == expected
    for region in corrupt:
        assert region.reason
        assert region.log_offset >= 0
        assert region.data in data
    return found, corrupt


def positions(batches: list[bytes]) -> list[tuple[int, int]]:
    return list(pairwise(accumulate(map(len, batches), initial=0)))


@pytest.mark.slow
@pytest.mark.parametrize("bit", [3, *long_cases((0, 7))])
@pytest.mark.parametrize(
    "frames",
    [[(2, "none")], [(2, "gzip"), (2, "zstd")], [(1, "none"), (0, "none")], [(1, "gzip"), (2, "lz4"), (0, "snappy")]],
    ids=str,
)
def test_flipped_bit_affects_only_its_batch(frames: list[tuple[int, str]], bit: int) -> None:
    batches = batches_of(4, frames)
    pieces = [b"".join(batches[i : i + 1]) for i in range(4)]
    data = b"".join(pieces)
    for number, (start, stop) in enumerate(positions(pieces)):
        unprotected = messages_in(pieces[number])
        for at in range(start, stop):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            others = [piece for i, piece in enumerate(pieces) if i != number]
            found, corrupt = accounted(bytes(damaged), others)
            hit = next(m for m in unprotected if m[0] <= at - start < m[1])
            expected = {row for piece in others for row in oracle_rows(piece)}
            extra = [row for row in found if row not in expected]
            if at - start - hit[0] >= 8 and not (pieces[number][16] == 2 and 12 <= at - start < 16):
                # Under the checksum, or the length: all bytes of what was hit are told, none of its records.
                kept = {row for m in unprotected if m != hit for row in oracle_rows(pieces[number][m[0] : m[1]])}
                assert set(extra) == kept
                told = b"".join(region.data for region in corrupt)
                cut_off = number == 3 and hit == unprotected[-1] and not corrupt
                assert told == bytes(damaged[start + hit[0] : start + hit[1]]) or cut_off


def messages_in(piece: bytes) -> list[tuple[int, int]]:
    """The stretches of a piece that have a checksum each: one, but for uncompressed messages of magic 0 and 1."""
    found, at = [], 0
    while at < len(piece):
        end = at + 12 + int.from_bytes(piece[at + 8 : at + 12])
        found.append((at, end))
        at = end
    return found


def test_length_that_spans_later_batches_hides_none() -> None:
    batches = batches_of(6)
    assert len(set(map(len, batches))) == 1
    for jumped in (1, 2, 3):
        wrong = batches[1][:8] + struct.pack(">i", len(batches[1]) * (jumped + 1) - 12) + batches[1][12:]
        data = b"".join([batches[0], wrong, *batches[2:]])
        found, (region,) = accounted(data, [batches[0], *batches[2:]])
        assert len(found) == 10
        assert region == CorruptRegion(3, wrong, region.reason)
        assert region.reason == (
            f"the batch header states {(jumped + 1) * len(wrong)} bytes, but only {len(wrong)} are present"
        )


@pytest.mark.parametrize("wrong", [0, 1, 12, 2**40, 2**62])
def test_base_offset_out_of_order_is_corrupt(wrong: int) -> None:
    batches = batches_of(5)
    damaged = struct.pack(">q", wrong) + batches[2][8:]
    others = [*batches[:2], *batches[3:]]
    found, (region,) = accounted(b"".join([*batches[:2], damaged, *batches[3:]]), others)
    assert len(found) == 8
    assert region.data == damaged
    assert region.log_offset == 5  # behind the batch before it
    assert f"offsets {wrong} to {wrong + 1}" in region.reason


@pytest.mark.parametrize("wrong", [2, 3, 4, 8, 9, 10])
def test_overlapping_batches_are_both_read(wrong: int) -> None:
    batches = batches_of(5)
    damaged = struct.pack(">q", wrong) + batches[2][8:]
    found, corrupt = accounted(b"".join([*batches[:2], damaged, *batches[3:]]), [*batches[:2], *batches[3:]])
    assert len(found) == 10
    assert not corrupt


def test_adjacent_damaged_batches_are_reported_at_their_offsets() -> None:
    batches = batches_of(4)
    damaged = [batch[:-1] + bytes([batch[-1] ^ 1]) for batch in batches[1:3]]
    _, corrupt = accounted(b"".join([batches[0], *damaged, batches[3]]), [batches[0], batches[3]])
    assert corrupt == [
        CorruptRegion(3, damaged[0], "the CRC-32C checksum of the batch is wrong"),
        CorruptRegion(6, damaged[1], "the CRC-32C checksum of the batch is wrong"),
    ]


@settings(deadline=None)  # the first example compiles
@given(data=st.data(), junk=st.binary(min_size=1, max_size=200), at=st.integers(0, 5), seed=st.integers(0, 50))
def test_junk_between_batches_affects_no_batch(data: st.DataObject, junk: bytes, at: int, seed: int) -> None:
    frames = random.Random(seed).sample(ALL_FRAMES, len(ALL_FRAMES))
    batches = batches_of(5, frames)
    torn = data.draw(st.sampled_from([b"", *(batch[:30] for batch in batches)]))
    whole = [*batches[:at], torn + junk, *batches[at:]]
    found, corrupt = accounted(b"".join(whole), batches)
    assert len(found) == 10
    told = b"".join(region.data for region in corrupt)
    assert told == torn + junk or at == 5


@settings(deadline=None)  # the first example compiles
@given(data=st.binary(max_size=400))
@example(data=bytes(200))
@example(data=b"\xff" * 200)
@example(data=b"\x01" * 200)
@example(data=bytes(11) + b"\x31" + bytes(4) + b"\x02" + bytes(300))
def test_arbitrary_bytes_are_accounted_for_once(data: bytes) -> None:
    records, corrupt = read_batches(data)
    assert not len(records)
    told = b"".join(region.data for region in corrupt)
    assert told == data[: len(told)]
    rest = data[len(told) :]
    assert len(rest) <= 16 or rest[16] <= 2  # only what looks like a batch cut off is left for later


@pytest.mark.slow
@settings(deadline=None)  # the first example compiles
@given(log=logs(max_batches=8), flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), max_size=4))
def test_damage_to_random_log_affects_no_other_batch(log: RandomLog, flips: list[tuple[int, int]]) -> None:
    for batches in log.batches().values():
        pieces = [data for batch in batches for data in _checked(batch_bytes(batch))]
        data = bytearray(b"".join(pieces))
        spans = positions(pieces)
        hit: set[int] = set()
        for at, mask in flips:
            data[at % len(data)] ^= mask
            hit |= {i for i, (start, stop) in enumerate(spans) if start <= at % len(data) < stop}
        # Several wrong base offsets can agree with each other against right ones.
        assume(sum(any(start <= at % len(data) < start + 8 for at, _ in flips) for start, _ in spans) < 2)
        accounted(bytes(data), [piece for i, piece in enumerate(pieces) if i not in hit])


def _checked(data: bytes) -> list[bytes]:
    return [data] if data[16] == 2 else [data[start:stop] for start, stop in messages_in(data)]
