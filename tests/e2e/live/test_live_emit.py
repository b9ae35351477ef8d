"""Emit through a live cluster: what expire planned is gone afterwards, nothing else is, and the tables follow."""

import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Self

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.pipeline import runner
from support.broker import workload
from support.broker.broker import Broker
from support.broker.tools import broker_groups, broker_offsets
from support.e2e.lakes import LATER, rows
from support.e2e.live import Live, assert_as_the_broker_answers, lake_of
from support.oracle.log_reader import read_log

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC, UNREAD = "emit-read", "emit-unread"
BOTH = {(TOPIC, 0): 1, (TOPIC, 1): 2}
IDLE = {"classic": 2, "consumer": 3, "simple": 2}
"""Groups that nobody uses, and the record type of the first tombstone that ends each."""
CHANGING = ("joins", "commits", "commits-the-same", "commits-elsewhere")

Key = tuple[str, str | None, int | None]


class NoSpark:
    """Stands for the session of a command: the little there is to do is done here."""

    seconds = 0.0

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self) -> None:
        pass


@pytest.fixture
def live(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """A broker that lets nothing go by itself."""
    monkeypatch.setattr(runner, "LazySession", NoSpark)
    (tmp_path / "broker").mkdir()
    with Broker(tmp_path / "broker", {"offsets.retention.minutes": "5000000"}) as broker:
        for topic in (TOPIC, UNREAD):
            workload.create_topic(broker.bootstrap, topic, 2)
        workload.member(broker.bootstrap, "classic", BOTH, "classic").close()
        workload.member(broker.bootstrap, "consumer", BOTH, "consumer").close()
        for group in ("simple", *CHANGING):
            workload.simple_commit(broker.bootstrap, group, BOTH)
        workload.simple_commit(broker.bootstrap, "used", {(UNREAD, 0): 1})
        yield Live(broker, lake_of(broker, tmp_path), capsys)


@pytest.mark.long
def test_planned_tombstones_are_emitted_through_the_cluster(live: Live) -> None:
    lake, bootstrap = Lake.open(live.lake), live.broker.bootstrap
    now = ("--now", str(LATER))
    with closing(workload.member(bootstrap, "used", {(TOPIC, 0): 5}, "consumer")):
        assert live.plain("run", *now)[0] == 0
        every = {(group, *key) for group in (*IDLE, *CHANGING) for key in (*BOTH, (None, None))}
        assert keys(lake, "planned") == every | {("used", UNREAD, 0)}
        workload.simple_commit(bootstrap, "commits", {(TOPIC, 0): 9})
        workload.simple_commit(bootstrap, "commits-the-same", {(TOPIC, 0): 1})
        workload.simple_commit(bootstrap, "commits-elsewhere", {(UNREAD, 0): 3})
        with closing(workload.member(bootstrap, "joins", BOTH, "classic")):
            code, out, _ = live.plain("emit")
        assert (code, broker_groups(bootstrap).keys()) == (0, {"used", *CHANGING})
        kept = {
            ("used", TOPIC, 0): 5,
            **{("joins", *key): offset for key, offset in BOTH.items()},
            ("commits", TOPIC, 0): 9,
            ("commits-the-same", TOPIC, 0): 1,
            ("commits-elsewhere", UNREAD, 0): 3,
        }
        assert {key: value[0] for key, value in broker_offsets(bootstrap).items()} == kept
        refused = {key: reason for key, reason in reasons(lake, "refused").items() if reason is not None}
        assert refused.keys() == {
            *((group, None, None) for group in CHANGING),
            *(("joins", *key) for key in BOTH),
            ("commits", TOPIC, 0),
            ("commits-the-same", TOPIC, 0),
        }
        assert refused["commits", TOPIC, 0].startswith("the committed offset changed: 9 at log offset")
        assert refused["commits-elsewhere", None, None] == "the group has offsets that are not deleted"
        assert reasons(lake, "emitted") == dict.fromkeys((every | {("used", UNREAD, 0)}) - refused.keys())
        assert f"{len(refused)} refused" in out
        assert_in_log(live)
        assert "Nothing to emit" in live.plain("emit")[1]
    assert live.plain("run", "--now", "0")[0] == 0
    assert_as_the_broker_answers(lake, bootstrap)
    # Nobody is there any more: a cycle that emits leaves nothing, and the next one finds it so.
    assert live.plain("run", "--emit", *now)[0] == 0
    assert (broker_groups(bootstrap), broker_offsets(bootstrap)) == ({}, {})
    assert_in_log(live)
    code, out, _ = live.plain("run", "--emit", *now)
    assert (code, rows(lake, "offsets"), rows(lake, "groups")) == (0, [], [])
    assert "Nothing to emit" in out


def keys(lake: Lake, outcome: str) -> set[Key]:
    return reasons(lake, outcome).keys()


def reasons(lake: Lake, outcome: str) -> dict[Key, str | None]:
    found = [row for row in rows(lake, "tombstones") if row["outcome"] == outcome]
    return {(row["group_id"], row["topic"], row["partition"]): row["reason"] for row in found}


def assert_in_log(live: Live) -> None:
    """Each outcome names the place of its tombstone in the broker's log."""
    found = {(record.log_partition, record.log_offset): record for record in read_log(live.broker.data_dir)}
    for row in rows(Lake.open(live.lake), "tombstones"):
        if row["outcome"] == "emitted":
            record = found[row["log_partition"], row["log_offset"]]
            assert (record.value, record.topic) == (None, "__consumer_offsets")
            assert record.key is not None
            assert row["group_id"].encode() in record.key
            (kind,) = struct.unpack_from(">h", record.key)
            if row["topic"] is None:
                assert kind == IDLE.get(row["group_id"], kind)
            else:
                assert kind == 1
                assert struct.unpack_from(">i", record.key, len(record.key) - 4) == (row["partition"],)
