"""`read_batches` against the oracle's reader and writer, and on batches of true checksum that are wrong inside."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from hypothesis import example, given, settings
from hypothesis import strategies as st

from offsetlake.kafka.batches.compression import MAX_DECOMPRESSED_BYTES
from offsetlake.kafka.batches.reader import read_batches
from support.kafka.golden import lines
from support.kafka.made_batches import (
    ALL_FRAMES,
    TIME,
    batches_of,
    expected_rows,
    oracle_rows,
    read,
    record,
    rejected,
    resealed,
    rows,
    with_payload,
)
from support.oracle.encoders import zigzag_varint
from support.oracle.log_writer import CODECS, Batch, Record, batch_bytes
from support.oracle.random_logs import RandomLog, logs, random_log

# --- whole logs ---


@pytest.mark.slow
@settings(deadline=None)  # the first example compiles
@given(log=logs())
def test_random_logs_are_read(log: RandomLog) -> None:
    for log_partition, batches in log.batches().items():
        data = b"".join(map(batch_bytes, batches))
        made = [r for r in log.records() if r.log_partition == log_partition]
        assert read(data) == expected_rows(made) == oracle_rows(data)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_big_random_logs_are_read_as_the_oracle_reads_them(seed: int) -> None:
    log = random_log(random.Random(seed), 4000, log_partitions=2)
    seen: set[tuple[int, str, bool, bool, bool]] = set()
    for batches in log.batches().values():
        seen |= {
            (b.magic, b.codec, b.append_timestamp is not None, b.delete_horizon is not None, b.is_control)
            for b in batches
        }
        data = b"".join(map(batch_bytes, batches))
        assert read(data) == oracle_rows(data)
    assert {(magic, codec) for magic, codec, *_ in seen} == set(ALL_FRAMES)
    assert all(any(of[flag] for of in seen) for flag in (2, 3, 4))


def test_records_of_mixed_magic_come_in_log_order() -> None:
    data = b"".join(batches_of(24, ALL_FRAMES))
    assert [row[0] for row in read(data)] == [offset for i in range(24) for offset in (3 * i, 3 * i + 1)]
    assert read(data) == oracle_rows(data)


def test_golden_batches() -> None:
    golden = {name: bytes.fromhex(data) for name, data in (line.split() for line in lines("BATCH"))}
    commit_key, other_key = bytes.fromhex("0001000267310002747000000007"), bytes.fromhex("0001000267310002747000000008")
    value = bytes.fromhex("0004000000000000002a00000005036d640000018bcfe568000100100102030405060708090a0b0c0d0e0f10")
    assert read(b"".join(golden[name] for name in ("plain", "txn", "commit", "abort"))) == [
        (0, TIME, -1, -1, False, commit_key, value),
        (1, TIME, -1, -1, False, other_key, None),
        (2, TIME, 4000, 6, False, commit_key, bytes.fromhex("00040000000000000032000000050100 00018bcfe5680000")),
        (3, TIME + 1, 4000, 6, True, b"\0\0\0\1", b"\0\0\0\0\0\x09"),
        (4, TIME + 1, 4000, 6, True, b"\0\0\0\0", b"\0\0\0\0\0\x09"),
    ]


def test_no_bytes_yield_no_records() -> None:
    records, corrupt = read_batches(b"")
    assert (len(records), corrupt) == (0, [])
    assert records.record_types().tolist() == []


@pytest.mark.parametrize("codec", CODECS)
def test_an_empty_batch_between_others(codec: Any) -> None:
    empty = batch_bytes(Batch(records=(), base_offset=2, last_offset=8, max_timestamp=TIME, codec=codec))
    data = batch_bytes(Batch(records=(record(0),))) + empty + batch_bytes(Batch(records=(record(9),), codec=codec))
    assert [row[0] for row in read(data)] == [0, 9]


def test_record_types_are_the_signed_first_two_bytes() -> None:
    keys = [None, b"", b"\0", b"\0\1", b"\xff\xfe", b"\x7f\xff1"]
    batch = Batch(records=tuple(Record(i, TIME, key, None) for i, key in enumerate(keys)))
    records, _ = read_batches(batch_bytes(batch))
    assert records.record_types().tolist() == [-1, -1, -1, 1, -2, 32767]


def test_where_selects_rows() -> None:
    records, _ = read_batches(b"".join(batches_of(4)))
    assert rows(records.where(records.log_offset % 3 == 0)) == [row for row in rows(records) if row[0] % 3 == 0]


def test_record_headers_are_skipped() -> None:
    headers = ((b"", None), (b"h" * 300, b""), (b"a", b"x" * 200))
    batch = Batch(records=(record(0)._replace(headers=headers), record(1)))
    assert read(batch_bytes(batch)) == oracle_rows(batch_bytes(batch))


def test_headers_are_returned_as_they_are_in_the_log() -> None:
    headers = ((b"name", b"value"), (b"", None), (b"name", b""))
    records = (Record(0, TIME, b"k", b"v", headers), Record(1, TIME, b"k", b"v"))
    found = read_batches(batch_bytes(Batch(records=records)))[0]
    assert found.headers(0) == b"\x06" + b"\x08name\x0avalue" + b"\x00\x01" + b"\x08name\x00"
    assert found.headers(1) is None


def test_incomplete_last_batch_is_ignored() -> None:
    first, second = batches_of(2)
    for size in range(len(second)):
        assert read(first + second[:size]) == oracle_rows(first)


# --- a true checksum, but wrong inside ---


def raw_record(offset_delta: int = 0, key: bytes = b"k", value: bytes = b"v", behind: bytes = b"\x00") -> bytes:
    """A record of magic 2 with these parts, whatever they are, behind a true length."""
    body = b"\x00" + zigzag_varint(0) + zigzag_varint(offset_delta)
    body += zigzag_varint(len(key)) + key + zigzag_varint(len(value)) + value + behind
    return zigzag_varint(len(body)) + body


def sized_record(body: bytes) -> bytes:
    return zigzag_varint(len(body)) + body


GOOD = raw_record(0) + raw_record(1)
HUGE = [2**31, 2**32, 2**62, 2**63 - 1, -2, -(2**31), -(2**63)]


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 1, 3, 4, 1000, 2**31 - 1])
@pytest.mark.parametrize("codec", CODECS)
def test_batch_with_wrong_record_count_is_corrupt(count: int, codec: Any) -> None:
    data = batch_bytes(Batch(records=(record(0), record(1)), last_offset=9, codec=codec))
    reason = rejected(resealed(data, count=count))
    assert str(count) in reason
    assert "states" in reason


@pytest.mark.parametrize(
    ("payload", "number"),
    [
        *((zigzag_varint(size) + raw_record()[1:], 1) for size in (*HUGE, 0, 5, len(raw_record()), -1)),
        *((sized_record(b"\0\0\0" + zigzag_varint(size) + b"k\x02v\0"), 1) for size in (*HUGE, 5, 100)),
        *((sized_record(b"\0\0\0\x02k" + zigzag_varint(size) + b"v\0"), 1) for size in (*HUGE, 3, 100)),
        *((raw_record(behind=zigzag_varint(count)), 1) for count in (*HUGE, 1, -1)),
        *((raw_record(behind=b"\x02" + zigzag_varint(size) + b"n\0"), 1) for size in (*HUGE, -1, 4)),
        *((raw_record(behind=b"\x02\x02n" + zigzag_varint(size)), 1) for size in (*HUGE, 1)),
        (raw_record(behind=b"\0\0"), 1),  # a byte too many
        (raw_record(behind=b""), 1),
        (b"\xff" * 11 + b"\x01" + raw_record(), 1),
        (sized_record(b"\0" + b"\x80" * 10 + b"\x01" + b"\0\0\0\0"), 1),
        *((raw_record(0) + raw_record(delta), 2) for delta in (0, -1, 10, 2**31, -(2**31))),
        (raw_record(-1) + raw_record(0), 1),
    ],
)
def test_batch_with_malformed_record_is_corrupt(payload: bytes, number: int) -> None:
    count = 2
    payload += raw_record(3) * (2 - number)
    assert rejected(with_payload(payload, count)) == (
        f"the batch header states {count} records, but record {number} is malformed"
    )


def test_unchanged_test_batches_are_valid() -> None:
    assert [row[0] for row in read(with_payload(GOOD, 2))] == [0, 1]
    assert [row[0] for row in read(with_payload(raw_record(behind=b"\x02\x02n\x01") + raw_record(9), 2))] == [0, 9]


class Strict:
    """Reads the records of a batch in plain Python; IndexError or ValueError where they are not just right."""

    def __init__(self, payload: bytes) -> None:
        self.payload, self.at = payload, 0

    def varint(self) -> int:
        raw = 0
        for i in range(10):
            self.at += 1
            raw |= (self.payload[self.at - 1] & 0x7F) << 7 * i
            if self.payload[self.at - 1] < 0x80:
                return (raw % 2**64 >> 1) ^ -(raw & 1)
        raise ValueError

    def sized(self) -> bytes | None:
        size = self.varint()
        if size < -1 or self.at + size > len(self.payload):
            raise ValueError
        self.at += max(size, 0)
        return None if size < 0 else self.payload[self.at - size : self.at]

    def record(self) -> tuple[int, bytes | None, bytes | None]:
        size = self.varint()
        end = self.at + size
        self.at += 1
        self.varint()
        found = self.varint(), self.sized(), self.sized()
        headers = self.varint()
        names = [(self.sized(), self.sized())[0] for _ in range(headers)]
        if self.at != end or headers < 0 or None in names:
            raise ValueError
        return found

    def records(self, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
        found = [self.record() for _ in range(count)]
        deltas = [-1, *(delta for delta, _, _ in found)]
        if self.at != len(self.payload) or deltas != sorted(set(deltas)) or deltas[-1] > 9:
            raise ValueError
        return found


PAYLOADS = st.one_of(
    st.binary(max_size=60),
    st.tuples(
        st.lists(st.builds(raw_record, st.integers(0, 9), st.binary(max_size=3), st.binary(max_size=200)), max_size=4),
        st.lists(st.tuples(st.integers(0, 10**4), st.binary(max_size=3)), max_size=2),
    ).map(lambda made: spliced(b"".join(made[0]), made[1])),
)


def spliced(data: bytes, changes: list[tuple[int, bytes]]) -> bytes:
    for at, new in changes:
        place = at % (len(data) + 1)
        data = data[:place] + new + data[place + 1 :]
    return data


@pytest.mark.slow
@settings(deadline=None, max_examples=400)
@given(payload=PAYLOADS, count=st.integers(0, 4))
@example(payload=GOOD, count=2)
@example(payload=GOOD, count=1)
def test_batch_is_read_only_if_all_records_are_valid(payload: bytes, count: int) -> None:
    records, corrupt = read_batches(with_payload(payload, count))
    try:
        expected = Strict(payload).records(count)
    except (IndexError, ValueError):
        assert (len(records), len(corrupt)) == (0, 1)
    else:
        assert [(row[0], row[5], row[6]) for row in rows(records)] == expected
        assert not corrupt


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "payload", [b"\x07", b"x" * 100, b"\x1f\x8b" + bytes(30), b"\x82SNAPPY\0" + bytes(30), b"\xff" * 9]
)
def test_batch_that_cannot_be_decompressed_is_corrupt(codec: int, payload: bytes) -> None:
    assert rejected(with_payload(payload, 1, attributes=codec)).startswith("the batch cannot be decompressed (")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("codec", "compress"), [(1, gzip_encode), (2, snappy_encode), (3, lz4_encode), (4, zstd_encode)]
)
def test_batch_above_decompression_limit_is_corrupt(codec: int, compress: Callable[[bytes], bytes]) -> None:
    assert "at most 128 MiB" in rejected(with_payload(compress(bytes(MAX_DECOMPRESSED_BYTES + 1)), 1, attributes=codec))


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff\xff\xff\xff\x0f",
        b"\x82SNAPPY\0" + bytes(8) + b"\0\0\0\5\xff\xff\xff\xff\x0f",
        b"\x82SNAPPY\0" + bytes(8) + b"\xff\xff\xff\xfc",
        b"\x82SNAPPY\0" + bytes(8) + b"\0\0\0\0",
    ],
)
def test_snappy_block_with_wrong_size_is_corrupt(payload: bytes) -> None:
    """4 GiB are stated, or blocks of no bytes or fewer."""
    assert rejected(with_payload(payload, 1, attributes=2)).startswith("the batch cannot be decompressed (snappy")


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_batch_with_unknown_codec_is_corrupt(codec: int) -> None:
    reason = rejected(with_payload(GOOD, 2, attributes=codec))
    assert reason == f"the batch has the unknown compression codec {codec}"


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(
    codec=st.sampled_from(CODECS[1:]),
    changes=st.lists(st.tuples(st.integers(0, 10**4), st.binary(max_size=3)), min_size=1, max_size=3),
    cut=st.integers(0, 30),
)
def test_changed_compressed_bytes_do_not_raise(codec: Any, changes: list[tuple[int, bytes]], cut: int) -> None:
    data = batch_bytes(Batch(records=(record(0, 300), record(1, 50)), codec=codec))
    payload = spliced(data[61 : len(data) - cut], changes)
    changed = resealed(data[:61] + payload)
    records, corrupt = read_batches(changed)
    assert (len(records), [region.data for region in corrupt]) in [(0, [changed]), (2, [])]
