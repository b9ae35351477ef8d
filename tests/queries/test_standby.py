"""How far translated offsets are behind, over small lakes."""

from pathlib import Path
from typing import Any

import pytest

from offsetlake.errors import BadRequest
from offsetlake.queries.standby import standby_lag
from support.queries.lakes import small_lake


def offset(group: str, topic: str, committed_offset: int, **others: Any) -> dict[str, Any]:
    columns = {"group_id": group, "topic": topic, "partition": 0, "committed_offset": committed_offset, "metadata": ""}
    times = {"commit_timestamp": 5, "value_version": 3, "log_partition": 0, "log_offset": 0, "log_timestamp": 5}
    return {**columns, **times, "ingest_run": 1, **others}


def translation(
    run: int, group: str, topic: str, committed_offset: int, evidence: str, **others: Any
) -> dict[str, Any]:
    columns = {"group_id": group, "topic": topic, "partition": 0, "committed_offset": committed_offset}
    kind = {"strategy": "translate", "outcome": "done", "log_partition": 0, "commit_timestamp": 1000 + run}
    return {**columns, **kind, "run_id": run, "evidence": evidence, **others}


def test_the_newest_translation_that_still_holds_counts(tmp_path: Path) -> None:
    offsets = [
        ("g", "a-1", 50),
        ("g", "back", 3),
        ("g", "new", 7),
        ("h", "a-1", 60),
        ("h", "moved", 9),
        ("h", "reset", 9),
    ]
    source = small_lake(tmp_path / "source", offsets=[offset(*each) for each in offsets])
    present = [("g", "e.a-1", 30), ("g", "e.back", 9), ("h", "e.a-1", 58), ("h", "e.moved", 4), ("h", "reset", 1)]
    done = [
        translation(1, "g", "e.a-1", 20, "a-1-0 at 22: offset sync 21 = 19"),
        translation(3, "g", "e.a-1", 30, "a-1-0 at 32: content of 40 records"),
        translation(4, "g", "e.a-1", 40, "a-1-0 at 42: content of 40 records", outcome="refused", reason="no"),
        translation(3, "h", "e.a-1", 58, "a-1-0 at 60: content of 40 records"),
        translation(3, "h", "e.moved", 5, "moved-0 at 9: content of 40 records"),
        translation(3, "g", "e.back", 9, "back-0 at 9: content of 40 records"),
        translation(3, "h", "reset", 1, "2026-01-01T00:00:00Z", strategy="to_datetime"),
    ]
    standby = small_lake(tmp_path / "standby", offsets=[offset(*each) for each in present], alterations=done)
    found = standby_lag(source, standby)
    columns = ("group_id", "topic", "translated_offset", "not_translated", "standby_offset", "translated_timestamp")
    assert [tuple(row[name] for name in columns) for row in found.to_pylist()] == [
        ("g", "new", None, None, None, None),
        ("h", "moved", None, None, None, None),
        ("h", "reset", None, None, None, None),
        ("g", "back", 9, -6, 9, 1003),  # the standby would skip records that the source reads again
        ("g", "a-1", 32, 18, 30, 1003),
        ("h", "a-1", 60, 0, 58, 1003),
    ]
    assert standby_lag(source, standby, "h*")["group_id"].to_pylist() == ["h"] * 3
    with pytest.raises(BadRequest, match="No group like 'x'"):
        standby_lag(source, standby, "x")
