"""Bad input gets a clear answer and loses nothing else: what a person sees and what the tables hold."""

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from offsetlake.errors import LogMismatch
from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import FinishedRun
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, rows, state
from support.lakes import new_lake
from support.oracle.encoders import offset_key, offset_value
from support.oracle.log_writer import Batch, Record, batch_bytes, write_partition

FOLDER = "__consumer_offsets-0"
SEGMENT = "00000000000000000000.log"


def _commit(at: int, partition: int = 0, **shape: Any) -> Batch:
    key = offset_key("g", "t", partition)
    return Batch(
        records=(
            Record(at, 1_700_000_000_000 + at, key, offset_value(3, 100 + at, commit_timestamp=1_700_000_000_000)),
        ),
        **shape,
    )


def _cycle(lake: Lake, log: Path) -> tuple[FinishedRun, FinishedRun]:
    return cycle(InProcess(), lake, log)


@pytest.fixture
def lake(place: str) -> Lake:
    return new_lake(place)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_torn_last_batch_is_read_when_complete(lake: Lake, log: Path) -> None:
    write_partition(log, 0, [_commit(0), _commit(1, 1)])
    whole = (log / FOLDER / SEGMENT).read_bytes()
    (log / FOLDER / SEGMENT).write_bytes(whole[:-5])
    ingested, _ = _cycle(lake, log)
    assert [row["partition"] for row in rows(lake, "offsets")] == [0]
    assert "not a complete batch" in " ".join(ingested.notes)
    (log / FOLDER / SEGMENT).write_bytes(whole)
    again, _ = _cycle(lake, log)
    assert [row["partition"] for row in rows(lake, "offsets")] == [0, 1]
    assert again.notes == ()


def test_batch_with_wrong_checksum_is_quarantined_alone(lake: Lake, log: Path) -> None:
    batches = [batch_bytes(_commit(at, at)) for at in range(3)]
    bad = bytearray(batches[1])
    bad[-1] ^= 1
    (log / FOLDER).mkdir(parents=True)
    (log / FOLDER / SEGMENT).write_bytes(batches[0] + bytes(bad) + batches[2])
    _cycle(lake, log)
    assert [row["partition"] for row in rows(lake, "offsets")] == [0, 2]
    (kept,) = rows(lake, "quarantine")
    assert (kept["log_partition"], kept["log_offset"], kept["value_bytes"]) == (0, 1, bytes(bad))
    assert "CRC" in kept["reason"]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (struct.pack(">h", 77) + b"x", b"", "77"),
        (offset_key("g", "t", 5), struct.pack(">h", 9) + b"x", "version 9"),
        (None, b"x", "null"),
        (offset_key("g", "t", 5), b"", "empty"),
        (struct.pack(">hh", 2, 50) + b"short", b"", "truncated"),
    ],
)
def test_undecodable_record_is_quarantined(lake: Lake, log: Path, key: bytes | None, value: bytes, reason: str) -> None:
    odd = Batch(records=(Record(1, 1_700_000_000_000, key, value),))
    write_partition(log, 0, [_commit(0), odd, _commit(2, 2)])
    _cycle(lake, log)
    assert [row["partition"] for row in rows(lake, "offsets")] == [0, 2]
    (kept,) = rows(lake, "quarantine")
    assert (kept["log_offset"], kept["key_bytes"], kept["value_bytes"]) == (1, key, value)
    assert reason in kept["reason"]


def test_records_deleted_before_ingest_are_noted_as_a_gap(lake: Lake, log: Path) -> None:
    write_partition(log, 0, [_commit(0)])
    _cycle(lake, log)
    shutil.rmtree(log)
    write_partition(log, 0, [_commit(7, 7)], segment_starts=(7,))
    ingested, _ = _cycle(lake, log)
    assert ingested.gaps == (("__consumer_offsets", 0, 1, 7),)
    assert "GAP" in ingested.notes[0]
    assert [row["partition"] for row in rows(lake, "offsets")] == [0, 7]


def test_log_shorter_than_the_position_is_refused(lake: Lake, log: Path) -> None:
    write_partition(log, 0, [_commit(0), _commit(1)])
    _cycle(lake, log)
    before = state(lake)
    shutil.rmtree(log)
    write_partition(log, 0, [_commit(0)])
    with pytest.raises(LogMismatch, match=r"ends at offset 1.*read up to 2.*--lake"):
        _cycle(lake, log)
    assert state(lake) == before


def test_different_log_of_the_same_length_is_refused(lake: Lake, log: Path) -> None:
    write_partition(log, 0, [_commit(0), _commit(1)])
    _cycle(lake, log)
    shutil.rmtree(log)
    write_partition(log, 0, [_commit(0), _commit(1, 9), _commit(2)])
    with pytest.raises(LogMismatch, match="not the one"):
        _cycle(lake, log)


def test_other_cluster_is_refused_and_a_moved_log_is_accepted(lake: Lake, log: Path, tmp_path: Path) -> None:
    write_partition(log, 0, [_commit(0)])
    (log / "meta.properties").write_text("cluster.id=first\n")
    _cycle(lake, log)
    moved = tmp_path / "moved"
    write_partition(moved, 0, [_commit(0), _commit(1, 1)])
    (moved / "meta.properties").write_text("cluster.id=second\n")
    with pytest.raises(LogMismatch, match=r"cluster second.*that of first"):
        _cycle(lake, moved)
    (moved / "meta.properties").write_text("cluster.id=first\n")
    _cycle(lake, moved)
    assert [row["partition"] for row in rows(lake, "offsets")] == [0, 1]


def test_log_with_a_missing_partition_is_refused(lake: Lake, log: Path) -> None:
    write_partition(log, 0, [_commit(0)])
    write_partition(log, 1, [_commit(0)])
    _cycle(lake, log)
    shutil.rmtree(log / "__consumer_offsets-1")
    with pytest.raises(LogMismatch, match="no __consumer_offsets-1"):
        _cycle(lake, log)


def test_commits_of_old_formats_among_new_ones_keep_their_order(lake: Lake, log: Path) -> None:
    """A chunk with magic 1 between magic 2 once came out of log order, and the older commit won."""
    write_partition(log, 0, [_commit(0), _commit(1, magic=1), _commit(2, magic=1, codec="gzip"), _commit(3)])
    _cycle(lake, log)
    assert [row["log_offset"] for row in rows(lake, "offsets")] == [3]
