"""`lag` over small lakes: which commits it uses, with which log end offsets, and its messages without any."""

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offsetlake.errors import BadRequest, NotInLake
from offsetlake.lake.lake import Lake
from offsetlake.queries.history import decided
from offsetlake.queries.history.decided import decided_until
from offsetlake.queries.lag import lag_by_group, lag_of_groups, lag_of_partitions, shown_status
from offsetlake.queries.lag_over_time import lag_over_time
from offsetlake.rules.lag.windows import newest_commits
from support.command_line import Run
from support.oracle.random_logs import random_log
from support.oracle.replay import OffsetKey, replay
from support.queries.lakes import commit, end, history_of, marker, small_lake, tombstone

Row = dict[str, Any]


def at(log_offset: int, committed_offset: int, time: int, **others: Any) -> Any:
    return commit(log_offset, committed_offset, commit_timestamp=time, **others)


# Partition 0 of t ended at 40, 50 and 100 when ingests 1, 2 and 4 asked, at 1000, 2000 and 4000 ms.
LAKE: dict[str, list[Any]] = {
    "log_ends": [
        end(1, 40),
        end(2, 50),
        end(4, 100),
        end(1, 7, topic="gone"),
        end(4, 10, partition=1),
        end(4, 0, topic="anew"),
    ],
    "offset_commits": [
        # slow: stood at 30 when 40 was the end, and moves by less than is written
        at(1, 30, 1500, group_id="slow"),
        at(2, 32, 2500, group_id="slow", ingest_run=4),
        at(3, 34, 3000, group_id="slow", ingest_run=4),
        # done: all is read, whatever came of its other commits
        at(10, 100, 3900, group_id="done", ingest_run=4),
        at(11, 1, 3950, group_id="done", ingest_run=4, producer_id=5, producer_epoch=0),
        at(12, 2, 3960, group_id="done", ingest_run=4, producer_id=6, producer_epoch=0),
        at(13, 3, 3970, group_id="done", ingest_run=4, commit_id=8, commit_size=2),
        # moved: its transaction is committed, and partition 1 too
        at(19, 44, 1980, group_id="moved"),
        at(20, 45, 1990, group_id="moved", producer_id=7, producer_epoch=0),
        at(21, 4, 3990, group_id="moved", partition=1, ingest_run=4),
        # deleted, and deleted and made anew
        at(30, 45, 1990, group_id="deleted"),
        tombstone(31, group_id="deleted"),
        at(32, 90, 1000, group_id="again"),
        tombstone(33, group_id="again"),
        at(34, 40, 1400, group_id="again"),
        at(35, 60, 3800, group_id="again", ingest_run=4),
        # of topics that are gone, or were made anew
        at(40, 5, 1000, group_id="orphan", topic="gone"),
        at(41, 3, 1000, group_id="orphan", topic="anew"),
        # stopped before any end was on record
        *(at(44 + n, 9 + n, 500 + n, group_id="stopped") for n in range(2)),
        # read by an ingest that could not ask
        at(50, 99, 4500, group_id="slow", ingest_run=5),
        at(51, 1, 4500, group_id="late", ingest_run=5),
    ],
    "transaction_markers": [marker(22, "COMMIT", 7), marker(23, "ABORT", 5)],
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return small_lake(tmp_path_factory.mktemp("lag") / "lake", **LAKE)


SHOWN = ("group_id", "topic", "partition", "status", "committed_offset", "end_offset", "lag", "lag_ms", "commits")


def rows(lake: Lake, *names: str, **asked: Any) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in lag_of_partitions(lake, **asked).to_pylist()]


def test_partitions_worst_first(lake: Lake) -> None:
    assert rows(lake, *SHOWN) == [
        ("orphan", "anew", 0, "BEYOND_END", 3, 0, None, None, 1),
        # 45 of 50 on record at 2000, and since 2010 nothing: 45 was the end half way from 40 to 50
        ("stopped", "t", 0, "STOP", 10, 100, 90, None, 2),
        ("moved", "t", 0, "STOP", 45, 100, 55, 2500, 2),
        # 13 behind at 1500, 28 at 2500 (the end was half way from 50 to 100 at 3000), 41 at 3000
        ("slow", "t", 0, "WARN", 34, 100, 66, None, 3),
        ("moved", "t", 1, "UNKNOWN", 4, 10, 6, None, 1),
        ("orphan", "gone", 0, "UNKNOWN", 5, None, None, None, 1),
        ("again", "t", 0, "OK", 60, 100, 40, 1600, 2),
        ("done", "t", 0, "OK", 100, 100, 0, 0, 1),
    ]
    assert [why for why in rows(lake, "group_id", "why") if why[1]] == [
        ("moved", "1 commit seen"), ("orphan", "log end unknown"),
    ]  # fmt: skip
    assert set(rows(lake, "commit_timestamp", "asked_timestamp", pattern="slow")) == {(3000, 4000)}


def test_groups_worst_first(lake: Lake) -> None:
    found = lag_of_groups(lag_of_partitions(lake)).to_pylist()
    assert lag_by_group(lake).to_pylist() == found
    assert lag_by_group(lake, "[m-o]*").to_pylist() == [row for row in found if row["group_id"] in ("moved", "orphan")]
    with pytest.raises(NotInLake, match="no group like 'x' has an offset"):
        lag_by_group(lake, "x")
    names = ("group_id", "status", "lag", "lag_ms", "partitions", "not_ok", "topic", "partition")
    assert [tuple(row[name] for name in names) for row in found] == [
        ("orphan", "BEYOND_END", None, None, 2, 1, "anew", 0),
        ("stopped", "STOP", 90, None, 1, 1, "t", 0),
        ("moved", "STOP", 61, None, 2, 1, "t", 0),
        ("slow", "WARN", 66, None, 1, 1, "t", 0),
        ("again", "OK", 40, 1600, 1, 0, "t", 0),
        ("done", "OK", 0, 0, 1, 0, "t", 0),
    ]


def test_lag_is_the_same_if_few_records_are_kept_at_a_time(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = lag_by_group(lake).to_pylist()
    monkeypatch.setattr(decided, "_ROWS_AT_ONCE", 1)
    assert lag_by_group(lake).to_pylist() == expected


def test_status_of_a_group_with_one_unknown_partition_is_shown_as_that_of_the_worst(lake: Lake) -> None:
    groups = lag_by_group(lake, "[m-o]*")
    assert dict(zip(groups["group_id"].to_pylist(), shown_status(groups), strict=True)) == {
        "moved": "STOP", "orphan": "BEYOND_END",
    }  # fmt: skip


def test_named_groups_and_topics_limit_the_rows(lake: Lake) -> None:
    assert rows(lake, "group_id", "topic", pattern="[m-o]*", topic="anew") == [("orphan", "anew")]
    assert rows(lake, "group_id", "partition", pattern="moved") == [("moved", 0), ("moved", 1)]


@pytest.mark.parametrize("now", [2000, 3999])
def test_lag_at_an_instant_uses_only_what_was_known_then(lake: Lake, now: int) -> None:
    """Two ingests had asked, and read what they had read; only time went on."""
    names = ("group_id", "status", "committed_offset", "end_offset", "lag", "lag_ms", "asked_timestamp")
    assert rows(lake, *names, topic="t", now=now) == [
        ("stopped", "STOP", 10, 50, 40, None, 2000),
        ("slow", "UNKNOWN", 30, 50, 20, None, 2000),
        ("again", "OK", 40, 50, 10, now - 1000, 2000),  # neither was behind the end before
        ("moved", "OK", 45, 50, 5, now - 1500, 2000),
    ]


def test_status_is_evaluated_at_the_given_instant(lake: Lake) -> None:
    """Slow is silent for 1000 ms at 4000, and its window is 1500 ms long."""
    assert rows(lake, "status", "lag", pattern="slow", now=4500) == [("WARN", 66)]
    assert rows(lake, "status", "lag", pattern="slow", now=4501) == [("STOP", 66)]


@pytest.mark.parametrize("commit_ids", [(), (7,)])
def test_commits_of_any_log_match_a_replay(tmp_path: Path, commit_ids: tuple[int, ...]) -> None:
    log = random_log(random.Random(21), 1500, groups=6, log_partitions=4, commit_ids=commit_ids)
    history = replay(log.records()).history
    expected: dict[OffsetKey, list[int]] = defaultdict(list)
    for entry in sorted(history, key=lambda entry: entry.record.log_offset):
        if entry.commit is None:
            expected[entry.key] = expected[entry.key] if entry.outcome == "partial" else []
        elif entry.outcome in (None, "committed"):
            expected[entry.key].append(entry.commit.committed_offset)
    assert {entry.outcome for entry in history} >= {None, "committed", "aborted", "open"} | (
        {"partial"} if commit_ids else set()
    )
    lake = small_lake(tmp_path / "lake", **history_of(log.records()))
    found = {}
    for windows in map(newest_commits, decided_until(lake, 1)):
        keys = [tuple(row.values()) for row in windows.keys.to_pylist()]
        found |= dict(zip(keys, np.split(windows.offsets, windows.starts[1:]), strict=bool(keys)))
    assert {key: offsets.tolist() for key, offsets in found.items()} == {
        key: offsets[-10:] for key, offsets in expected.items() if offsets
    }


# --- what cannot be answered is said in a sentence ---


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"pattern": "nobody"}, "no group like 'nobody' has an offset, as far as the lake .* has read"),
        ({"pattern": "deleted"}, "no group like 'deleted' has an offset"),
        ({"topic": "u"}, "no group has an offset of topic 'u'"),
        ({"pattern": "slow", "topic": "gone"}, "no group like 'slow' has an offset of topic 'gone'"),
        ({"now": 999}, r"log end offsets are recorded since 1970-01-01T00:00:01\.000Z: .*00\.999Z is before that"),
    ],
)
def test_unknown_groups_topics_and_instants_are_refused(lake: Lake, asked: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        lag_of_partitions(lake, **asked)


def test_one_observation_of_the_log_end_raises_no_alarm(run: Run, tmp_path: Path) -> None:
    """As after the first cycle over a live cluster: many commits, but no lag of any of them is known."""
    commits = [
        *(at(n, 10 + n, 100 * n, group_id="often") for n in range(5)),
        at(9, 3, 500, group_id="once"),
        *(at(10 + n, 50, 100 * n, group_id="at the end") for n in range(2)),
    ]
    lake = small_lake(tmp_path / "lake", offset_commits=commits, log_ends=[end(1, 50, asked_timestamp=9000)])
    names = ("group_id", "status", "why", "lag", "lag_ms", "lag_at_least_ms")
    assert rows(lake, *names) == [
        ("once", "UNKNOWN", "1 commit seen", 47, None, 0),
        ("often", "UNKNOWN", "log end seen once", 36, None, 0),
        ("at the end", "OK", None, 0, 0, 0),
    ]
    _, out, _ = run("lag", "--lake", str(lake.location.path))
    assert "unknown (1 commit seen) " in out
    assert "unknown (log end seen once) " in out
    assert "STOP" not in out


def test_lake_of_a_folder_has_no_log_end_offsets(tmp_path: Path) -> None:
    read = small_lake(tmp_path / "read", offset_commits=[commit(1, 5)])
    for lake in (read, small_lake(tmp_path / "empty")):
        for now in (None, 5):
            with pytest.raises(
                BadRequest, match=r"has no log end offsets of topics: only a cycle over a live cluster records them"
            ):
                lag_of_partitions(lake, now=now)


def test_history_without_commits_has_no_lag(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no group has an offset"):
        lag_of_partitions(small_lake(tmp_path / "lake", log_ends=[end(1, 5)]))


# --- over time ---


def test_lag_of_a_group_over_time(lake: Lake) -> None:
    def over_time(group: str) -> list[tuple[int | None, ...]]:
        names = ["ingest_run", "asked_timestamp", "lag", "partitions", "lag_at_most"]
        return [tuple(row.values()) for row in lag_over_time(lake, group).select(names).to_pylist()]

    assert over_time("slow") == [(1, 1000, 10, 1, 10), (2, 2000, 20, 1, 20), (4, 4000, 66, 1, 66)]
    # At 1000 ms, the committed offset 45 was beyond the log end 40 that was recorded then.
    assert over_time("moved") == [(1, 1000, None, 1, 40), (2, 2000, 5, 1, 5), (4, 4000, 61, 2, 61)]
    assert over_time("orphan") == [(1, 1000, 2, 1, 2), (4, 4000, None, 1, 0)]  # gone, and made anew
    assert over_time("deleted") == []
    for group in ("late", "nobody"):
        with pytest.raises(BadRequest, match=f"the lag of group '{group}' is not known"):
            lag_over_time(lake, group)


# --- the command ---


def answered(run: Run, lake: Lake, *options: str) -> list[Row]:
    code, out, _ = run("lag", "--lake", str(lake.location.path), "--format", "json", *options)
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def test_lag_command_lists_groups_or_partitions(run: Run, lake: Lake) -> None:
    assert [row["group_id"] for row in answered(run, lake, "--limit", "2")] == ["orphan", "stopped"]
    assert [row["behind"] for row in answered(run, lake, "--group", "moved", "--partitions")] == ["2s", None]
    assert [row["behind"] for row in answered(run, lake, "--status", "STOP")] == [">3s", ">2s"]
    assert [row["group_id"] for row in answered(run, lake, "--status", "UNKNOWN", "--partitions")] == [
        "moved",
        "orphan",
    ]
    assert [row["group_id"] for row in answered(run, lake, "--status", "WARN")] == ["slow"]
    assert [row["partition"] for row in answered(run, lake, "--status", "STOP", "--partitions")] == [0, 0]
    assert answered(run, lake, "--status", "REWIND") == []
    assert [row["status"] for row in answered(run, lake, "--group", "slow", "--now", "4501")] == ["STOP"]
    assert [row["lag"] for row in answered(run, lake, "--group", "slow", "--over-time")] == [10, 20, 66]


def test_lag_command_prints_a_table(run: Run, lake: Lake) -> None:
    code, out, err = run("lag", "--lake", str(lake.location.path), "--group", "orphan", "--partitions")
    assert code == 0
    header, *lines = [line.split() for line in out.splitlines()]
    names = ["group_id", "topic", "partition", "status", "committed_offset", "start_offset", "end_offset", "lag"]
    assert header[:8] == names
    assert [line[:8] for line in lines] == [
        ["orphan", "anew", "0", "BEYOND_END", "3", "0", "0", "0"],
        ["orphan", "gone", "0", "unknown", "(log", "end", "unknown)", "5"],
    ]
    assert err == (
        "The lag of 1 of 2 partitions is unknown: the last cycle did not read their log end offsets.\n"
        "The lag of 1 of 2 partitions is unknown: their committed offsets are beyond the log end.\n"
    )


def test_lag_of_an_earlier_time_is_noted(run: Run, tmp_path: Path) -> None:
    """The newest ingest could not read log end offsets."""
    runs = [{"run_id": number, "job": "ingest", "started_at": number, "finished_at": number} for number in (1, 2)]
    tables = {"log_ends": [end(1, 5)], "offset_commits": [commit(1, 5), commit(2, 3, ingest_run=2)]}
    for name, known in (("as of then", runs), ("newest", runs[:1])):
        lake = small_lake(tmp_path / name, runs=known, **tables)
        _, _, err = run("lag", "--lake", str(lake.location.path))
        note = "The lag is as of 1970-01-01T00:00:01.000Z: cycles since then read no log end offsets"
        assert (note in err) == (len(known) == 2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--group", "nobody"], "error: no group like 'nobody' has an offset"),
        (["--now", "yesterday"], "error: Invalid timestamp 'yesterday'"),
        (["--status", "GOOD"], "GOOD"),
        (["--over-time"], "error: --over-time requires --group"),
        (["--over-time", "--group", "nobody"], "error: the lag of group 'nobody' is not known"),
    ],
)
def test_lag_command_refuses_with_a_message(run: Run, lake: Lake, options: list[str], says: str) -> None:
    code, out, err = run("lag", "--lake", str(lake.location.path), *options)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err
