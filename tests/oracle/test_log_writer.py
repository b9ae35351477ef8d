"""What the writer makes comes back from the oracle's reader and from aiokafka's."""

import random
from pathlib import Path

import pytest
from aiokafka.record import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from support.oracle import log_reader, log_writer, random_logs, replay
from support.oracle.log_writer import Batch, Record

TIME = 1_700_000_000_000


@given(log=random_logs.logs())
def test_random_logs_are_read_back_unchanged(
    log: random_logs.RandomLog, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log.write(folder)
    assert log_reader.read_log(folder) == log.records()


def test_seeded_logs_are_reproducible_and_read_back_unchanged(tmp_path: Path) -> None:
    log = random_logs.random_log(random.Random(7), 2000, log_partitions=4)
    assert log == random_logs.random_log(random.Random(7), 2000, log_partitions=4)
    log.write(tmp_path)
    assert log_reader.read_log(tmp_path) == log.records()
    state = replay.replay(log.records())
    assert state.committed
    assert state.pending
    assert {entry.outcome for entry in state.history} == {None, "committed", "aborted", "open"}
    assert {entry.value_version for entry in state.history} == {None, 0, 1, 2, 3, 4}
    assert not state.undecodable


@given(
    records=st.lists(
        st.tuples(
            st.integers(1, 300),
            st.integers(TIME - 10_000, TIME + 10_000),
            st.none() | st.binary(max_size=40),
            st.none() | st.binary(max_size=300) | st.just(b"long" * 20_000),
        ),
        min_size=1,
        max_size=5,
    ),
    magic_and_codec=st.sampled_from(
        [(magic, codec) for magic in (2, 1, 0) for codec in log_writer.CODECS_OF_MAGIC[magic]]
    ),
    append_timestamp=st.none() | st.just(TIME + 99),
    delete_horizon=st.none() | st.just(TIME + 86_400_000),
)
def test_aiokafka_and_the_oracle_read_the_same_records(
    records: list[tuple[int, int, bytes | None, bytes | None]],
    magic_and_codec: tuple[int, log_writer.Codec],
    append_timestamp: int | None,
    delete_horizon: int | None,
) -> None:
    magic, codec = magic_and_codec
    offset = 1000
    made = []
    for gap, timestamp, key, value in records:
        offset += gap
        made.append(Record(offset, timestamp, key, value))
    batch = Batch(
        records=tuple(made),
        magic=magic,
        codec=codec,
        append_timestamp=append_timestamp if magic else None,
        delete_horizon=delete_horizon if magic == 2 else None,
    )
    data = log_writer.batch_bytes(batch)
    expected = []
    for record in made:
        timestamp = batch.append_timestamp or record.timestamp
        expected.append((record.offset, timestamp if magic else None, record.key, record.value))
    found = []
    memory = MemoryRecords(data)
    while memory.has_next():
        read = memory.next_batch()
        assert read.validate_crc()
        found += [(record.offset, record.timestamp, record.key, record.value) for record in read]
    assert found == expected
    ours = log_reader.read_segment(data, "t", 0)
    assert [(record.log_offset, record.log_timestamp, record.key, record.value) for record in ours] == [
        (offset, -1 if timestamp is None else timestamp, key, value) for offset, timestamp, key, value in expected
    ]


def test_xerial_blocks_have_the_size_of_the_java_client() -> None:
    data = log_writer.batch_bytes(Batch(records=(Record(0, TIME, b"k", b"v" * 100_000),), codec="snappy"))
    assert data[61:].startswith(bytes.fromhex("82534e41505059000000000100000001"))
    sizes = []
    position = 61 + 16
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        sizes.append(_uncompressed_length(data[position + 4 :]))
        position += 4 + size
    assert position == len(data)
    assert sizes[:-1] == [32 * 1024] * 3


def _uncompressed_length(block: bytes) -> int:
    """A raw snappy block starts with it, 7 bits a byte."""
    length = shift = 0
    for byte in block:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return length


def test_headers_and_batches_without_records_are_skipped() -> None:
    with_header = Batch(records=(Record(5, TIME, b"k", b"v", headers=((b"h", b"1"), (b"n", None))),), base_offset=3)
    empty = Batch(records=(), base_offset=6, last_offset=9, max_timestamp=TIME)
    last = Batch(records=(Record(12, TIME, b"k", None),), base_offset=10, last_offset=14)
    data = b"".join(map(log_writer.batch_bytes, (with_header, empty, last)))
    assert [record.log_offset for record in log_reader.read_segment(data, "t", 0)] == [5, 12]


def test_segments_roll_at_given_offsets_and_size(tmp_path: Path) -> None:
    batches = [Batch(records=(Record(offset, TIME, b"k", b"v"),)) for offset in (3, 10, 20, 21, 22)]
    size = len(log_writer.batch_bytes(batches[0]))
    paths = log_writer.write_partition(tmp_path, 2, batches, segment_starts=[0, 8], segment_bytes=2 * size)
    assert [path.name for path in paths] == [f"{start:020d}.log" for start in (0, 8, 21)]
    assert [path.stat().st_size // size for path in paths] == [1, 2, 2]
    assert [record.log_offset for record in log_reader.read_log(tmp_path)] == [3, 10, 20, 21, 22]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_flipped_bit_is_detected_and_torn_tail_is_ignored(magic: int) -> None:
    records = (Record(0, TIME, b"key", b"value"),)
    data = log_writer.batch_bytes(Batch(records=records, magic=magic))
    with pytest.raises(ValueError, match="wrong CRC"):
        list(log_reader.read_segment(data[:-2] + bytes([data[-2] ^ 1]) + data[-1:], "t", 0))
    assert len(list(log_reader.read_segment(data + data[:-1], "t", 0))) == 1
