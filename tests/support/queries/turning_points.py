"""Logs whose offsets mostly grow, lakes that read them, and views of turning points compared with all of history."""

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.views import views
from offsetlake.lake.upkeep import VacuumRetention
from offsetlake.log.address import LogAddress
from offsetlake.log.disk import folder as log_folder
from offsetlake.pipeline.compact.job import compact
from offsetlake.pipeline.ingest.job import ingest
from offsetlake.pipeline.maintain.job import maintain
from offsetlake.rules.policy import Keep
from support.oracle.encoders import Member, group_metadata_key, group_metadata_value, offset_key, offset_value
from support.oracle.log_writer import Batch, Record, marker_batch, write_partition

WHOLE_HISTORY = Path(__file__).parent / "whole_history"
START = 1_700_000_000_000
MEMBER = Member("m1", None, "client", "/127.0.0.1", 60_000, 45_000, b"", b"")
KEYS = [(group, topic, partition) for group in ("a", "b", "c") for topic in ("t", "u") for partition in (0, 1)]


def batches_of_steps(rng: random.Random, count: int) -> Iterator[Batch]:
    """Yield batches of a log: offsets that mostly grow, are often repeated, and sometimes go back or are deleted."""
    reached = dict.fromkeys(KEYS, 0)
    offset, clock = 0, START
    producer, epoch = -1, -1
    for _ in range(count):
        clock += rng.choice((0, 1000, 60_000, 60_000, 600_000, -2000))
        records = []
        kind = rng.choice(("plain",) * 14 + ("transaction", "marker", "parts", "group"))
        if kind == "marker":
            outcome = rng.choice(("COMMIT", "COMMIT", "ABORT"))
            yield marker_batch(
                outcome, offset=offset, timestamp=clock, producer_id=rng.choice((7, 8)), producer_epoch=0
            )
            offset += 1
            continue
        if kind == "group":
            members = rng.choice(((), (MEMBER,)))
            value = group_metadata_value(
                3, protocol_type="consumer", generation=3, protocol="range" if members else None,
                leader="m1" if members else None, members=members,
            )  # fmt: skip
            yield Batch(records=(Record(offset, clock, group_metadata_key(rng.choice("abc")), value),))
            offset += 1
            continue
        producer, epoch = (rng.choice((7, 8)), 0) if kind == "transaction" else (-1, -1)
        size = rng.choice((1, 2, 3))
        chosen = rng.sample(KEYS, size)
        for number, key in enumerate(chosen):
            reached[key] = max(
                reached[key] + rng.choice((0, 0, 0, 1, 5, 5, 5, 5, 100) + (-20,) * (rng.random() < 0.3)), 0
            )
            is_tombstone = kind == "plain" and rng.random() < 0.02
            value = None if is_tombstone else offset_value(3, reached[key], commit_timestamp=clock)
            headers = ((b"commit.id", struct.pack(">q", 5)), (b"commit.size", struct.pack(">i", size)))
            records.append(Record(offset + number, clock, offset_key(*key), value, headers if kind == "parts" else ()))
        yield Batch(
            records=(*records[: rng.choice((size, size, 1)) if kind == "parts" else size],),
            producer_id=producer, producer_epoch=epoch, is_transactional=producer >= 0,
        )  # fmt: skip
        offset += size


def quiet(_text: str) -> None:
    pass


def lake_of_steps(
    path: Path, seed: int, runs: int, monkeypatch: pytest.MonkeyPatch, cut_after: int = 0, chunk_bytes: int = 3000
) -> Lake:
    monkeypatch.setattr(log_folder, "CHUNK_BYTES", chunk_bytes)
    batches = [*batches_of_steps(random.Random(seed), 900)]
    lake = Lake.create(path / "lake")
    for run in range(1, runs + 1):
        write_partition(path / "log", 0, batches[: len(batches) * run // runs])
        ingest(lambda: None, lake, LogAddress(folder=path / "log"), quiet)
        compact(lambda: None, lake, quiet)
        if run == cut_after:
            maintain(lake, None, VacuumRetention(0, 0), quiet, Keep(history_ms=0))
    return lake


def compare_views(lake: Lake, expected_rows: set[str]) -> None:
    for name in ("regressions", "double_writers", "stalled_partitions", "commit_rate"):
        order = views()[name].order
        sql = (WHOLE_HISTORY / f"{name}.sql").read_text(encoding="utf-8")
        names = ("changes", "commit_steps", "alterations", "empty_periods", "offsets")
        expected = lake.query(f"SELECT * FROM ({sql}) ORDER BY {order}", *names).to_pylist()
        assert lake.query(f"SELECT * FROM {name} ORDER BY {order}", name).to_pylist() == expected, name
        assert expected or name not in expected_rows
