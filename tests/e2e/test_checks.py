"""The checks on a lake with something in every table, that Spark has made."""

from pathlib import Path

import pytest

from offsetlake.checks.expectations import evidence, pinned, read_suites
from offsetlake.lake.lake import Lake
from support.e2e.delta_files import contents

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


@pytest.mark.long
def test_checks_of_a_full_lake_pass_except_for_artificial_records(full_lake: Lake, tmp_path: Path) -> None:
    from offsetlake.checks.runner import evaluate  # noqa: PLC0415 - seconds, of every worker that collects tests

    suites = read_suites([])
    pins = pinned(full_lake, suites, {})
    found = {suite.name: evidence(full_lake, suite, pins, since=0) for suite in suites}
    answer = evaluate(suites, found, pins, tmp_path / "pages", lambda _: None)
    (broken,) = [row for row in answer.to_pylist() if not row["success"]]
    odd = [
        row
        for row in contents(full_lake, "offsets")
        if min(row["committed_offset"] + 1, row["partition"], row["commit_timestamp"], row["expire_timestamp"] or 0) < 0
    ]
    assert {row["log_partition"] for row in odd} == {200}
    assert broken["expectation"].startswith("committed offsets are at least -1")
    assert broken["observed"].startswith(f"{len(odd)} rows: ")
    assert "nothing to check" not in answer["observed"].to_pylist()
