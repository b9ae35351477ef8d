"""The data source without Spark: its two kinds hold every record of a log exactly once."""

import random
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlake.log import reading
from offsetlake.log.disk import folder as log_folder
from offsetlake.log.disk.folder import describe
from offsetlake.log.positions import OFFSETS_TOPIC, SHARE_STATE_TOPIC, LogPartition, OffsetRange
from offsetlake.log.reading import ranges_to_json
from offsetlake.log.spark_source import CommitLogReader, CommitLogSource
from support.log.made_folders import write
from support.oracle.encoders import offset_key
from support.oracle.log_reader import ABORT, LogRecord, read_log
from support.oracle.log_writer import Batch, Record
from support.oracle.random_logs import RandomLog, logs, random_log
from support.oracle.replay import UndecodableError, decode_offset_record

FIXTURES = Path(__file__).parents[1] / "fixtures"


def read(folder: Path, records: str, **options: str) -> list[dict[str, Any]]:
    """All rows of all readers, asked as Spark asks."""
    entry = CommitLogSource({"log": str(folder), "records": records, **options})
    reader = entry.reader(entry.schema())
    assert isinstance(reader, CommitLogReader)
    rows = []
    for group in reader.partitions():
        for batch in reader.read(group):
            assert batch.schema.names == entry.schema().names
            batch.validate(full=True)
            assert batch.num_rows
            rows += batch.to_pylist()
    return rows


def commit_rows(records: Iterable[LogRecord]) -> list[dict[str, Any]]:
    """What the oracle makes of the offset commits and tombstones, in log order."""
    rows = []
    for record in records:
        entry = None if record.is_control else _decoded(record)
        if entry is None:
            continue
        plain = record.producer_id == -1
        commit = entry.commit._asdict() if entry.commit else {}
        names = ("committed_offset", "leader_epoch", "metadata", "commit_timestamp", "expire_timestamp", "topic_id")
        row = {name: commit.get(name) for name in names}
        row |= {"log_partition": record.log_partition, "log_offset": record.log_offset, "kind": entry.kind}
        row |= {"log_timestamp": None if record.log_timestamp == -1 else record.log_timestamp}
        row |= dict(zip(("group_id", "topic", "partition"), entry.key, strict=True))
        row |= {"record_type": entry.key_type, "value_version": entry.value_version}
        row |= {"producer_id": None if plain else record.producer_id}
        row |= {"commit_id": entry.commit_id, "commit_size": entry.commit_size}
        rows.append(row | {"producer_epoch": None if plain else record.producer_epoch})
    return rows


def _decoded(record: LogRecord) -> Any:
    try:
        return decode_offset_record(record)
    except UndecodableError:
        return None


def place(row: dict[str, Any]) -> tuple[int, int]:
    return row["log_partition"], row["log_offset"]


def is_as_the_oracle_says(folder: Path, records: list[LogRecord], **options: str) -> None:
    """Commits equal the oracle's; the others are the rest: each record of the log in one of them, and once."""
    found = sorted(read(folder, "offset_commits", **options), key=place)
    assert [{name: row[name] for name in row if name != "superseded"} for row in found] == commit_rows(records)
    others = [row for row in read(folder, "others", **options) if row["log_topic"] == OFFSETS_TOPIC]
    every = Counter((record.log_partition, record.log_offset) for record in records)
    assert Counter(map(place, [*found, *others])) == every
    assert set(every.values()) <= {1}
    by_place = {place(row): row for row in others}
    for record in records:
        row = by_place.get((record.log_partition, record.log_offset))
        if row is not None:
            expected = ("transaction_markers",) if record.is_control else ("group_records", "quarantine")
            assert row["kind"] in expected
            if record.is_control:
                assert row["marker"] == ("ABORT" if record.control_type == ABORT else "COMMIT")
            if row["kind"] == "quarantine":
                assert (row["key_bytes"], row["value_bytes"]) == (record.key, record.value)


def test_a_log_that_begins_with_an_empty_segment(tmp_path: Path) -> None:
    write(tmp_path, (0, []), (5, []), [Batch(records=(Record(7, 1, offset_key("g", "t", 0), None),))])
    assert [place(row) for row in read(tmp_path, "offset_commits")] == [(0, 7)]
    assert read(tmp_path, "others") == []


@pytest.mark.long
@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(log=logs(), size=st.integers(1, 3000), junk=st.lists(st.binary(max_size=12), max_size=3))
def test_random_logs_hold_each_record_once(
    log: RandomLog, size: int, junk: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log.write(folder)
    # Records that nobody can decode stand in a partition of their own.
    keys = [*junk, *(b"\0\1" + key for key in junk), b"\0\1\0\1\xff\0\1t\0\0\0\0", offset_key("g", "t", 0)]
    values = [None, b"", b"\0\7"]
    undecodable = [Record(i, 1, key, values[i % 3]) for i, key in enumerate(keys)]
    write(folder, [Batch(records=tuple(undecodable))], partition=LogPartition(OFFSETS_TOPIC, 77))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_folder, "MAX_SLICE_BYTES", size)
        patch.setattr(log_folder, "CHUNK_BYTES", 17 + size)
        patch.setattr(reading, "READER_BYTES", 2 * size)
        records = [r for r in read_log(folder) if r.log_partition != 77]
        ranges = {w: r for w, r in describe(folder).ranges.items() if w.partition != 77}
        is_as_the_oracle_says(folder, records, ranges=ranges_to_json(ranges))
        rows = [
            row for kind in ("offset_commits", "others") for row in read(folder, kind) if row["log_partition"] == 77
        ]
    assert sorted(row["log_offset"] for row in rows) == list(range(len(keys)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_big_random_log_holds_each_record_once(seed: int, tmp_path: Path) -> None:
    random_log(random.Random(seed), 3000, log_partitions=3, batches_per_segment=40).write(tmp_path)
    records = read_log(tmp_path)
    is_as_the_oracle_says(tmp_path, records)
    ranges: dict[LogPartition, OffsetRange] = {
        where: OffsetRange(held.end // 3, 2 * held.end // 3) for where, held in describe(tmp_path).ranges.items()
    }
    inside = [
        r
        for r in records
        for held in [ranges[LogPartition(r.topic, r.log_partition)]]
        if held.start <= r.log_offset < held.end
    ]
    assert len(inside) > 500
    is_as_the_oracle_says(tmp_path, inside, ranges=ranges_to_json(ranges))


@pytest.mark.parametrize("name", ["real-log", "every-record-type"])
def test_a_log_of_a_real_broker_holds_each_record_once(name: str) -> None:
    records = read_log(FIXTURES / name)
    assert records
    is_as_the_oracle_says(FIXTURES / name, records)
    shares = read_log(FIXTURES / name, SHARE_STATE_TOPIC)
    others = [row for row in read(FIXTURES / name, "others") if row["log_topic"] == SHARE_STATE_TOPIC]
    assert Counter(map(place, others)) == Counter((r.log_partition, r.log_offset) for r in shares)
    assert {row["kind"] for row in others} == {"share_state_records"}


def test_damage_is_quarantined_and_affects_no_other_record(tmp_path: Path) -> None:
    random_log(random.Random(5), 600, log_partitions=1, groups=3, batches_per_segment=1000).write(tmp_path)
    (path,) = tmp_path.glob("*/*.log")
    records = read_log(tmp_path)
    data, spans, at = path.read_bytes(), [], 0
    while at < len(data):
        spans.append((at, at + 12 + struct.unpack_from(">i", data, at + 8)[0]))
        at = spans[-1][1]
    start, stop = spans[len(spans) // 2]
    path.write_bytes(data[:start] + b"\xff" * (stop - start) + data[stop:])
    places = [place(row) for kind in ("offset_commits", "others") for row in read(tmp_path, kind)]
    quarantined = [row for row in read(tmp_path, "others") if row["kind"] == "quarantine" and row["key_bytes"] is None]
    assert b"".join(row["value_bytes"] for row in quarantined) == b"\xff" * (stop - start)
    path.write_bytes(data[:start] + data[stop:])
    assert set(places) - {place(row) for row in quarantined} == {(0, r.log_offset) for r in read_log(tmp_path)}
    assert len(read_log(tmp_path)) < len(records)
