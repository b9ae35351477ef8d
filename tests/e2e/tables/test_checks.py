"""The checks on a lake with something in every table, that Spark has made."""

from pathlib import Path

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.pipeline.checks.expectations import evidence, pinned, read_suites
from support.e2e.delta_files import Row, contents

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def misplaced_batches(row: Row) -> int:
    """Return how many batches of a share partition are empty, overlap a batch before them, or precede its start."""
    start = -(2**63) if row["start_offset"] is None else row["start_offset"]
    batches = sorted((batch["first_offset"], batch["last_offset"]) for batch in row["state_batches"])
    return sum(
        first > last or first < start or any(first <= end for _, end in batches[:place])
        for place, (first, last) in enumerate(batches)
    )


@pytest.mark.long
def test_checks_of_a_full_lake_pass_except_for_artificial_records(full_lake: Lake, tmp_path: Path) -> None:
    from offsetlake.pipeline.checks.runner import evaluate  # noqa: PLC0415 - seconds, of every worker that collects tests

    suites = read_suites([])
    pins = pinned(full_lake, suites, {})
    found = {suite.name: evidence(full_lake, suite, pins, since=0) for suite in suites}
    answer = evaluate(suites, found, pins, tmp_path / "pages", lambda _: None)
    broken, of_share = [row for row in answer.to_pylist() if not row["success"]]
    odd = [
        row
        for row in contents(full_lake, "offsets")
        if min(row["committed_offset"] + 1, row["partition"], row["commit_timestamp"], row["expire_timestamp"] or 0) < 0
    ]
    assert {row["log_partition"] for row in odd} == {200}
    assert broken["expectation"].startswith("committed offsets are at least -1")
    assert broken["observed"].startswith(f"{len(odd)} rows: ")
    assert of_share["expectation"].startswith("batches of share partitions do not overlap")
    share_partitions = contents(full_lake, "share_partitions")
    assert {row["log_partition"] for row in share_partitions} == {200}
    assert of_share["observed"].startswith(f"{sum(map(misplaced_batches, share_partitions))} rows: ")
    assert "nothing to check" not in answer["observed"].to_pylist()
