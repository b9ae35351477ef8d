"""The tails of log partitions in folders: what shows that a log is the one that was read, or is not."""

import struct
from dataclasses import replace
from pathlib import Path

import google_crc32c
import pytest

from offsetlake.log.disk.tails import read_tails
from offsetlake.log.positions import SHARE_STATE_TOPIC, LogPartition, OffsetRange
from offsetlake.log.tails import Tail, TailQuery
from support.log.made_folders import PARTITION, batch, write
from support.oracle.log_writer import Batch, batch_bytes

COMPACTED = [
    batch(3, gap=1),  # the last record is gone
    Batch(records=(batch(3).records[0], batch(3).records[2])),
    Batch(records=(), base_offset=3, last_offset=5, max_timestamp=1),
    batch(3, delete_horizon=1_800_000_000_000),
]


def crc(each: Batch) -> int:
    return int(google_crc32c.value(batch_bytes(each)[16:]))


def tail(folder: Path, end: int, epoch: int | None = None, partition: LogPartition = PARTITION) -> Tail:
    (found,) = read_tails(folder, [TailQuery(partition, end, epoch)])
    return found


def checkpoint(folder: Path, *entries: tuple[int, int]) -> None:
    lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    (folder / str(PARTITION) / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")


def test_checksum_is_that_of_the_batch_before_the_offset(tmp_path: Path) -> None:
    batches = [batch(0), batch(3), batch(6), batch(9)]
    write(tmp_path, batches[:2], batches[2:])
    for each in batches:
        assert tail(tmp_path, each.last + 1).checksum == crc(each)
    assert len({crc(each) for each in batches}) == 4
    for end in (0, 1, 2, 4, 11, 13, 100):
        assert tail(tmp_path, end).checksum is None
    assert tail(tmp_path, 3, partition=LogPartition(SHARE_STATE_TOPIC, 0)) == Tail()
    assert tail(tmp_path / "none", 3) == Tail()


def test_empty_segment_after_tail_is_skipped(tmp_path: Path) -> None:
    write(tmp_path, [batch(0)], (3, []))
    assert tail(tmp_path, 3).checksum == crc(batch(0))


def test_leader_epoch_does_not_change_the_checksum(tmp_path: Path) -> None:
    write(tmp_path, [batch(0, partition_leader_epoch=7)])
    assert tail(tmp_path, 3) == Tail(crc(batch(0, partition_leader_epoch=8)), leader_epoch=7)
    write(tmp_path, [batch(0, size=21)])
    assert tail(tmp_path, 3).checksum != crc(batch(0))


def test_damage_before_tail_does_not_hide_it(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [batch(0), batch(3), batch(6), batch(9)])
    size = len(batch_bytes(batch(0)))
    for harm in (bytes(size), struct.pack(">q", 2**40) + batch_bytes(batch(3))[8:], b"junk"):
        path.write_bytes(b"".join([batch_bytes(batch(0)), harm, batch_bytes(batch(6)), batch_bytes(batch(9))]))
        assert tail(tmp_path, 12).checksum == crc(batch(9))


@pytest.mark.parametrize("compacted", [*COMPACTED, batch(3, magic=1, codec="gzip")])
def test_batch_whose_bytes_may_have_changed_has_no_checksum(compacted: Batch, tmp_path: Path) -> None:
    write(tmp_path, [batch(0), compacted, batch(compacted.last + 1)])
    assert tail(tmp_path, compacted.last + 1).checksum is None
    assert tail(tmp_path, compacted.last + 4).checksum is not None


@pytest.mark.parametrize("magic", [0, 1])
def test_message_that_is_not_compressed_has_a_checksum(magic: int, tmp_path: Path) -> None:
    write(tmp_path, [batch(0, magic=magic)])
    (message,) = [batch_bytes(Batch(records=batch(0).records[2:], magic=magic))]
    assert tail(tmp_path, 3) == Tail(int(google_crc32c.value(message[16:])))


@pytest.mark.parametrize("end", [4, 5])
def test_batch_that_spans_the_offset_is_named(end: int, tmp_path: Path) -> None:
    write(tmp_path, [batch(0), batch(3, partition_leader_epoch=2)])
    assert tail(tmp_path, end) == Tail(leader_epoch=0, spanning=OffsetRange(3, 6))


@pytest.mark.parametrize("compacted", COMPACTED)
def test_leader_epochs_before_and_after_a_compacted_tail(compacted: Batch, tmp_path: Path) -> None:
    first, after = batch(0, partition_leader_epoch=3), batch(compacted.last + 1, partition_leader_epoch=6)
    end = compacted.last + 1
    write(tmp_path, [first, replace(compacted, partition_leader_epoch=5), after])
    assert tail(tmp_path, end) == Tail(leader_epoch=5, next_epoch=6)
    write(tmp_path, [first], (3, [replace(compacted, partition_leader_epoch=5)]), (end, [after]))
    assert tail(tmp_path, end) == Tail(leader_epoch=5, next_epoch=6)
    write(tmp_path, [first], (3, []), (end, [after]))  # the batch was removed
    assert tail(tmp_path, end) == Tail(leader_epoch=3, next_epoch=6)


def test_batches_after_the_offset_in_its_segment_do_not_hide_those_before(tmp_path: Path) -> None:
    write(tmp_path, [batch(0, partition_leader_epoch=3)], (3, [batch(9, partition_leader_epoch=6)]))
    assert tail(tmp_path, 6) == Tail(leader_epoch=3, next_epoch=6)


def test_end_of_a_leader_epoch_is_that_of_the_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, [batch(0, partition_leader_epoch=3), replace(COMPACTED[0], partition_leader_epoch=3)])
    end = COMPACTED[0].last + 1
    assert tail(tmp_path, end, 3).epoch_end is None  # without a checkpoint
    checkpoint(tmp_path, (1, 0), (3, 1), (5, 4), (8, 90))
    assert [tail(tmp_path, end, epoch).epoch_end for epoch in (0, 1, 2, 3, 4, 5, 7, 8, 9)] == [
        0, 1, 1, 4, 4, 90, 90, None, None,
    ]  # fmt: skip
    assert tail(tmp_path, 3, 3).epoch_end is None  # the checksum says more
    assert tail(tmp_path, end).epoch_end is None
    (tmp_path / str(PARTITION) / "leader-epoch-checkpoint").write_bytes(b"0\n\xff\n-1 7\nx\n")
    assert tail(tmp_path, end, 3).epoch_end is None
