"""Compares the newest commits of each key with one list per key."""

from collections import defaultdict
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.rules.lag.windows import Windows, newest_commits, window_rows

SCHEMA = pa.schema(
    [
        ("group_id", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("log_offset", pa.int64()),
        ("kind", pa.string()), ("committed_offset", pa.int64()), ("commit_timestamp", pa.int64()),
    ]
)  # fmt: skip

Key = tuple[str, str, int]


def listed(windows: Windows) -> dict[Key, list[tuple[int, int]]]:
    commits_by_key: dict[Key, list[tuple[int, int]]] = {}
    commits = list(zip(windows.offsets.tolist(), windows.timestamps.tolist(), strict=True))
    for key, start, newest in zip(windows.keys.to_pylist(), windows.starts, windows.newest, strict=True):
        commits_by_key[key["group_id"], key["topic"], key["partition"]] = commits[start : newest + 1]
    assert sum(map(len, commits_by_key.values())) == len(commits)
    return commits_by_key


def record(log_offset: int, key: Key, committed_offset: int | None) -> dict[str, Any]:
    group, topic, partition = key
    kind = "tombstone" if committed_offset is None else "commit"
    values = {
        "committed_offset": committed_offset,
        "commit_timestamp": None if committed_offset is None else log_offset,
    }
    return {"group_id": group, "topic": topic, "partition": partition, "log_offset": log_offset, "kind": kind} | values


def test_window_has_the_newest_ten_commits_after_the_last_tombstone() -> None:
    a, b, c, d = ("g", "t", 0), ("g", "t", 1), ("g", "u", 0), ("h", "t", 0)
    records = [record(number, a, number) for number in range(12)]
    records += [record(20, b, 5), record(21, b, None), record(22, b, 6), record(30, c, 5), record(31, c, None)]
    records += [record(40, d, None), record(41, d, None), record(42, d, 3)]
    assert listed(newest_commits(pa.Table.from_pylist(records[::-1], SCHEMA))) == {
        a: [(number, number) for number in range(2, 12)],
        b: [(6, 22)],
        d: [(3, 42)],
    }


keys = st.tuples(st.sampled_from(["g", "h"]), st.just("t"), st.sampled_from([0, 1]))


@given(st.lists(st.tuples(keys, st.none() | st.integers(0, 9)), max_size=25), st.integers(1, 4), st.randoms())
def test_windows_are_those_of_one_list_per_key(commits: list[tuple[Key, int | None]], size: int, order: Any) -> None:
    records = [record(log_offset, *commit) for log_offset, commit in enumerate(commits)]
    expected: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    for log_offset, (key, offset) in enumerate(commits):
        expected[key] = [] if offset is None else [*expected[key], (offset, log_offset)][-size:]
    order.shuffle(records)
    windows = newest_commits(pa.Table.from_pylist(records, SCHEMA), size)
    assert listed(windows) == {key: window for key, window in expected.items() if window}
    half = len(records) // 2
    parts = [window_rows(pa.Table.from_pylist(part, SCHEMA), size) for part in (records[:half], records[half:])]
    assert listed(newest_commits(pa.concat_tables(parts), size)) == listed(windows)
    assert all(part.num_rows <= len(expected) * (size + 1) for part in parts)
