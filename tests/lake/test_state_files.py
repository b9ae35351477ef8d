"""State files contain the rows of a dict after any changes: sorted, no group split, other files not rewritten."""

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlake.lake import state_files
from offsetlake.lake.files import commit, table_schema
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import list_state_files, read_state_files, rewrite

GROUPS = st.sampled_from([*"abcdefghij", "ж", "a\U0001f600", ""])
CHANGES = st.dictionaries(GROUPS, st.integers(0, 3), min_size=1, max_size=6)
"""By group how many rows it is to have; none takes it away."""


def _rows(lake: Lake, change: dict[str, int], run: int) -> pa.Table:
    base = {
        "committed_offset": run, "metadata": "", "commit_timestamp": 0, "record_type": 1, "value_version": 3,
        "log_partition": 3, "log_offset": run, "topic": "t",
    }  # fmt: skip
    rows = [base | {"group_id": group, "partition": at} for group, count in change.items() for at in range(count)]
    return pa.Table.from_pylist(rows, schema=table_schema("offsets"))


@pytest.mark.long
@pytest.mark.slow
@given(steps=st.lists(CHANGES, min_size=1, max_size=6), size=st.integers(1, 5))
@settings(max_examples=12, deadline=None)
def test_state_files_match_a_dict_after_any_changes(steps: list[dict[str, int]], size: int) -> None:
    held: dict[str, tuple[int, int]] = {}
    before, state_files.STATE_FILE_ROWS = state_files.STATE_FILE_ROWS, size
    try:
        with TemporaryDirectory() as folder:
            lake = Lake.create(Path(folder) / "lake")
            for run, change in enumerate(steps, start=1):
                _step(lake, change, run)
                held = {group: at for group, at in held.items() if group not in change}
                held |= {group: (count, run) for group, count in change.items() if count}
                _assert_held(lake, held)
    finally:
        state_files.STATE_FILE_ROWS = before


def _step(lake: Lake, change: dict[str, int], run: int) -> None:
    of = list_state_files(lake, "offsets", lake.versions("offsets")["offsets"]).get(3, [])
    new = _rows(lake, change, run)

    def combine(old: pa.Table, changed: pa.Table) -> pa.Table:
        kept = old.filter(pc.invert(pc.is_in(old["group_id"], changed["group_id"])))
        added = new.filter(pc.is_in(new["group_id"], changed["group_id"]))
        return pa.concat_tables([kept, added.cast(kept.schema)])

    changed = pa.table({"group_id": pa.array(list(change), pa.string())})
    exchange = rewrite(lake, "offsets", of, changed, combine)
    untouched = {state_file.path for state_file in of} - set(exchange.removed)
    commit(lake, "offsets", [exchange], "test", run)
    now = list_state_files(lake, "offsets", lake.versions("offsets")["offsets"]).get(3, [])
    assert untouched <= {state_file.path for state_file in now}


def _assert_held(lake: Lake, held: dict[str, tuple[int, int]]) -> None:
    of = list_state_files(lake, "offsets", lake.versions("offsets")["offsets"]).get(3, [])
    spans = [sorted(read_state_files(lake, "offsets", [state_file])["group_id"].to_pylist()) for state_file in of]
    for span, behind in pairwise(spans):
        assert span[-1] < behind[0]
    found = read_state_files(lake, "offsets", of).to_pylist()
    assert sorted((row["group_id"], row["partition"], row["committed_offset"]) for row in found) == sorted(
        (group, at, run) for group, (count, run) in held.items() for at in range(count)
    )
