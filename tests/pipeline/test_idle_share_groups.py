"""Share groups that nobody reads from: planned, withdrawn and shown before, and verified by the checks."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import FinishedRun
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.checks.expectations import evidence, first_run, pinned, read_suites
from offsetlake.pipeline.emit.job import emit
from offsetlake.pipeline.expire import job as expire_job
from offsetlake.pipeline.expire.job import expire
from offsetlake.pipeline.expire.what_if import what_if
from offsetlake.queries import questions
from offsetlake.rules.conditions import SHARE_ONLY_THROUGH_CLUSTER
from offsetlake.rules.policy import RetentionPolicy
from support.e2e.in_process import InProcess
from support.e2e.lakes import LATER, cycle, rows
from support.lakes import new_lake
from support.queries.lakes import Row, small_lake

BROKER_LOG = Path(__file__).parents[1] / "fixtures" / "broker-log"
IDLE = 1_000
FOREVER = 10**15
POLICY = RetentionPolicy(FOREVER, share_idle_ms=IDLE)
GROUPS: list[Row] = [
    {
        "group_id": name,
        "group_type": kind,
        "state": state,
        "protocol_type": kind,
        "log_offset": offset,
        "log_timestamp": 50,
    }
    for offset, (name, kind, state) in enumerate(
        [
            ("classic", "classic", "Dead"),
            ("in-use", "share", "Stable"),
            ("read", "share", "Empty"),
            ("unread", "share", "Empty"),
        ]
    )
]


def quiet(_text: str) -> None:
    pass


def evaluated(lake: Lake, now: int, policy: RetentionPolicy = POLICY) -> FinishedRun:
    return expire(InProcess, lake, policy, now, quiet)  # type: ignore[arg-type]


def decisions(lake: Lake) -> dict[str, tuple[str, str, int]]:
    """Return the newest outcome, the clock and its value of each group with a decision."""
    found = questions.tombstones(lake).to_pylist()
    assert {(row["topic"], row["rule"]) for row in found} <= {(None, "share_idle")}
    return {row["group_id"]: (row["outcome"], row["clock"], row["clock_timestamp"]) for row in found}


def planned(since: int, outcome: str = "planned") -> tuple[str, str, int]:
    return outcome, "activity_timestamp", since


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two Empty share groups: `read` has share partitions in two log partitions, `unread` has none."""
    small_lake(tmp_path / "lake", groups=GROUPS)
    update(tmp_path / "lake", 0, 100)
    update(tmp_path / "lake", 1, 40)
    return Lake.open(tmp_path / "lake")


def update(lake: Path, log_partition: int, timestamp: int) -> None:
    """Add a share partition of the group `read`, last updated at a time."""
    row = {"group_id": "read", "partition": log_partition, "log_partition": log_partition, "log_offset": 3}
    small_lake(lake, share_partitions=[row | {"updated_timestamp": timestamp}])


@pytest.mark.parametrize(
    ("unresolved", "left"),
    [
        ({"scope": "share_partition", "group_id": "unread", "topic_id": "x", "partition": 0}, {"read"}),
        ({"scope": "share_partition", "group_id": "read", "topic_id": "x", "partition": 0}, {"unread"}),
        ({"scope": "log_partition", "group_id": ""}, set()),
    ],
)
def test_share_groups_with_a_state_that_cannot_be_decoded_are_kept(
    unresolved: dict[str, Any], left: set[str], lake: Lake
) -> None:
    where = {"log_topic": "__share_group_state", "log_partition": 7, "log_offset": 9, "reason": "version 9 is unknown"}
    small_lake(Path(str(lake.location)), unresolved_records=[unresolved | where])
    evaluated(Lake.open(lake.location), 100 + IDLE)
    assert {*decisions(Lake.open(lake.location))} == left


def test_idle_share_groups_are_planned_when_their_time_is_over(lake: Lake) -> None:
    assert evaluated(lake, 49 + IDLE).counts["share_idle"] == 0
    assert evaluated(lake, 50 + IDLE).counts["planned"] == 1, "the evaluation is repeated at the next change"
    assert decisions(lake) == {"unread": planned(50)}
    assert evaluated(lake, 99 + IDLE).outcome == "nothing new"
    assert evaluated(lake, 100 + IDLE).counts["planned"] == 1
    assert decisions(lake) == {"read": planned(100), "unread": planned(50)}
    row = questions.tombstones(lake).to_pylist()[0]
    shown = ("log_partition", "judged_offset", "retention_ms", "group_type", "state", "committed_offset")
    assert [row[name] for name in shown] == [0, 2, IDLE, "share", "Empty", None]


def test_evaluation_is_repeated_only_if_it_depends_on_what_changed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    start = expire_job.start_evaluation
    monkeypatch.setattr(expire_job, "start_evaluation", lambda *inputs: started.append(inputs) or start(*inputs))
    for policy, times in ((RetentionPolicy(FOREVER), 1), (POLICY, 2)):
        started.clear()
        for partition in (2, 3):
            evaluated(lake, 60, policy)
            evaluated(lake, 61, policy)
            update(lake.location.path, partition + 2 * times, 60)
            lake = Lake.open(lake.location)
        assert len(started) == times


def test_share_group_that_was_updated_is_withdrawn_and_planned_with_new_evidence(lake: Lake) -> None:
    evaluated(lake, 100 + IDLE)
    update(lake.location.path, 2, 300)
    lake = Lake.open(lake.location)
    assert evaluated(lake, 299 + IDLE).counts["withdrawn"] == 1
    assert decisions(lake) == {"read": planned(100, "withdrawn"), "unread": planned(50)}
    evaluated(lake, 300 + IDLE)
    assert decisions(lake)["read"] == planned(300)
    update(lake.location.path, 3, 310)
    lake = Lake.open(lake.location)
    assert evaluated(lake, LATER).counts["planned"] == 1, "it is still idle, since a later time"
    assert decisions(lake)["read"] == planned(310)


def test_without_the_policy_share_groups_are_kept(lake: Lake) -> None:
    report = evaluated(lake, LATER, RetentionPolicy(FOREVER))
    assert (report.counts["planned"], "share_idle" in report.counts) == (0, False)
    evaluated(lake, LATER)
    assert evaluated(lake, LATER, RetentionPolicy(FOREVER)).counts["withdrawn"] == 2


def test_what_if_shows_when_share_groups_expire(lake: Lake) -> None:
    found = what_if(lake, POLICY, RetentionPolicy(FOREVER), 60 + IDLE).to_pylist()
    shown = {row["group_id"]: (row["group_goes"], row["next_expiry_timestamp"]) for row in found}
    assert shown == {
        "classic": (False, None), "in-use": (False, None), "read": (False, 100 + IDLE), "unread": (True, 50 + IDLE),
    }  # fmt: skip


@pytest.mark.long
def test_share_group_of_a_broker_is_planned_checked_and_refused_by_a_folder(tmp_path: Path) -> None:
    log = tmp_path / "log"
    shutil.copytree(BROKER_LOG, log, ignore=shutil.ignore_patterns("meta.properties"))
    lake = new_lake(tmp_path / "lake")
    cycle(InProcess(), lake, log)
    written = [row["log_timestamp"] for row in rows(lake, "group_records") if row["group_id"] == "thumbnailer"]
    updates = [row["log_timestamp"] for row in rows(lake, "share_state_records") if row["kind"] == "update"]
    since = max(*written, *updates)
    assert evaluated(lake, since + IDLE - 1).counts["share_idle"] == 0
    assert evaluated(lake, since + IDLE).counts["share_idle"] == 1
    decided = {row["group_id"]: row for row in rows(lake, "tombstones")}["thumbnailer"]
    assert (decided["rule"], decided["clock_timestamp"]) == ("share_idle", since)
    suites = read_suites(["after_expire"])
    pins = pinned(lake, suites, {})
    assert not any(found.rows for found in evidence(lake, suites[0], pins, first_run(lake, suites[0], pins)))
    emit(lake, LogAddress(folder=log), quiet)
    refused = questions.tombstones(lake, "thumbnailer").to_pylist()
    assert [(row["outcome"], row["reason"]) for row in refused] == [("refused", SHARE_ONLY_THROUGH_CLUSTER)]
