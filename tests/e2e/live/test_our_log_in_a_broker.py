"""A real broker loads the log that emit wrote behind its own records, and answers what the tables say."""

from pathlib import Path
from typing import Any

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.writer import appender
from offsetlake.pipeline.changes import execute as changes
from offsetlake.pipeline.changes import reset as offset_resets
from offsetlake.pipeline.changes.cleanup import plan_cleanup
from offsetlake.pipeline.emit.job import emit
from offsetlake.pipeline.expire.job import expire
from offsetlake.rules.policy import Override, RetentionPolicy
from offsetlake.rules.strategies import shift_by
from offsetlake.util.times import now_ms
from support.broker import workload
from support.broker.broker import Broker
from support.broker.data_folder import copy_log, put_back
from support.broker.tools import await_loaded, broker_groups, broker_offsets
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, rows
from support.lakes import new_lake

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC, OTHER = "put-back", "put-back-other"
BOTH = {(TOPIC, 0): 3, (TOPIC, 1): 4, (OTHER, 0): 5}
LEFT = {"classic": "classic", "848": "consumer"}
WEEK = 7 * 86_400_000
Tables = tuple[dict[tuple[str, str, int], tuple[int, int, str]], dict[str, tuple[str, str, str]]]


def tables(lake: Lake) -> Tables:
    """Offsets and groups as a broker answers them."""
    offsets = {
        (row["group_id"], row["topic"], row["partition"]): (
            row["committed_offset"],
            -1 if row["leader_epoch"] is None else row["leader_epoch"],
            row["metadata"],
        )
        for row in rows(lake, "offsets")
    }
    groups = {
        row["group_id"]: (row["state"], row["group_type"], row["protocol_type"] or "") for row in rows(lake, "groups")
    }
    return offsets, groups


@pytest.mark.long
def test_broker_serves_the_records_that_emit_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broker").mkdir()
    log, lake = tmp_path / "log", new_lake(tmp_path / "lake")
    with Broker(tmp_path / "broker") as broker:
        _groups(broker.bootstrap)
        before = broker_offsets(broker.bootstrap), broker_groups(broker.bootstrap)
        broker.stop()
        copy_log(broker.data_dir, log)
        cycle(InProcess(), lake, log)
        assert tables(lake) == before
        monkeypatch.setattr(appender, "SEGMENT_BYTES", 1)  # every write begins a segment, which the broker joins
        _expire(lake, log)
        _by_hand(lake, log)
        after = tables(lake)
        _assert_as_meant(*after)
        assert {row["what"] for row in rows(lake, "audit_events")} == {"expire", "cleanup", "reset", "undelete"}
        assert len([*log.glob("*/*.log")]) > len([*log.glob("*")])
        put_back(log, broker.data_dir)
        broker.start()
        await_loaded(broker.bootstrap, before[1].keys())
        assert (broker_offsets(broker.bootstrap), broker_groups(broker.bootstrap)) == after
        # And it goes on from there: a group that went commits again.
        workload.simple_commit(broker.bootstrap, "expires-simple", {(TOPIC, 0): 9})
        assert broker_offsets(broker.bootstrap) == after[0] | {("expires-simple", TOPIC, 0): (9, -1, "")}


def _groups(bootstrap: str) -> None:
    for topic, partitions in ((TOPIC, 2), (OTHER, 1)):
        workload.create_topic(bootstrap, topic, partitions)
    for name in ("expires", "expires-and-returns", "cleaned", "stays"):
        workload.simple_commit(bootstrap, f"{name}-simple", BOTH)
        for kind, protocol in LEFT.items():
            workload.member(bootstrap, f"{name}-{kind}", BOTH, protocol).close()  # type: ignore[arg-type]
    workload.committed_transaction(bootstrap, "put-back", "expires-transaction", BOTH)
    workload.committed_transaction(bootstrap, "put-back", "stays-transaction", BOTH)
    workload.simple_commit(bootstrap, "reset", BOTH)
    workload.simple_commit(bootstrap, "reset", {(TOPIC, 1): 40}, leader_epoch=0)


def _expire(lake: Lake, log: Path) -> None:
    """Expire the groups whose names begin with `expires`, except for the other topic of those that return."""
    policy = RetentionPolicy(
        1000 * WEEK, (Override("expires-and-returns-*", OTHER, 1000 * WEEK), Override("expires-*", "*", WEEK))
    )
    expire(InProcess, lake, policy, now_ms() + 2 * WEEK, lambda _: None)  # type: ignore[arg-type]
    counts = emit(lake, LogAddress(folder=log), lambda _: None).counts
    assert counts == {"emitted": 4 * (3 + 1) + 3 * 2, "gone": 0, "done": 0, "refused": 0}
    cycle(InProcess(), lake, log)


def _by_hand(lake: Lake, log: Path) -> None:
    def done(job: str, table: str, make: changes.Make) -> None:
        _, row = changes.execute(lake, LogAddress(folder=log), job, table, make, lambda _: None)
        counts = row.counts
        assert counts["refused"] + counts["gone"] == 0
        assert counts["emitted"] + counts["done"] > 0
        cycle(InProcess(), lake, log)

    done("cleanup", "tombstones", lambda: plan_cleanup(lake, "cleaned-*", None, now_ms(), live=False))
    asked = offset_resets.Reset("reset", "shift_by", lambda offsets: shift_by(offsets, -2), {TOPIC: None})
    done("reset", "alterations", lambda: offset_resets.reset(lake, asked, None, now_ms()).drop_columns(["note"]))
    done(
        "undelete",
        "alterations",
        lambda: offset_resets.undelete(lake, "expires-and-returns-*", None, now_ms()).drop_columns(["note"]),
    )


def _assert_as_meant(offsets: dict[tuple[str, str, int], tuple[int, int, str]], groups: dict[str, Any]) -> None:
    kinds = ("simple", *LEFT)
    whole = {f"{name}-{kind}" for name in ("stays", "expires-and-returns") for kind in kinds} | {"stays-transaction"}
    assert groups.keys() == whole | {"reset"}
    assert {key: offset for key, (offset, _, _) in offsets.items()} == {
        **{(group_id, *key): offset for group_id in whole for key, offset in BOTH.items()},
        ("reset", TOPIC, 0): 1,
        ("reset", TOPIC, 1): 38,
        ("reset", OTHER, 0): 5,
    }
