"""Files of snapshots: what is written can be read by others and by `import`; what is no offset is refused."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather

from offsetlake.errors import BadRequest
from offsetlake.pipeline.snapshot_files import LOG_ENDS, export, offsets_of_file

SUFFIXES = (".parquet", ".arrow", ".jsonl", ".csv")
Key = tuple[str, str, int]

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=30)
OFFSETS = st.dictionaries(
    st.tuples(NAMES, NAMES.filter(bool), st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=20
)


def table(offsets: dict[Key, int]) -> pa.Table:
    """Return rows as a snapshot has them: with more columns, and dictionaries."""
    keys = [*offsets]
    return pa.table(
        {
            "group_id": pa.array([key[0] for key in keys], pa.string()).dictionary_encode(),
            "topic": pa.array([key[1] for key in keys], pa.string()).dictionary_encode(),
            "partition": pa.array([key[2] for key in keys], pa.int32()),
            "committed_offset": pa.array([*offsets.values()], pa.int64()),
            "metadata": pa.array([None] * len(keys), pa.string()),
        }
    )


def read(path: Path, pattern: str = "*") -> dict[Key, int]:
    rows = offsets_of_file(path, pattern).to_pylist()
    return {(row["group_id"], row["topic"], row["partition"]): row["new_offset"] for row in rows}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, suffix: str) -> None:
    folder = tmp_path_factory.mktemp("files")

    @given(OFFSETS)
    def check(offsets: dict[Key, int]) -> None:
        export(table(offsets), {1: 7}, folder / f"offsets{suffix}")
        assert read(folder / f"offsets{suffix}") == offsets

    check()


def test_files_have_the_position_in_the_log(tmp_path: Path) -> None:
    rows, ends = table({("g", "t", 0): 5}), {10: 3, 2: 7}
    for suffix in SUFFIXES:
        export(rows, ends, tmp_path / f"offsets{suffix}")
    expected = {"2": 7, "10": 3}
    assert json.loads(pq.read_schema(tmp_path / "offsets.parquet").metadata[LOG_ENDS.encode()]) == expected
    assert json.loads(feather.read_table(tmp_path / "offsets.arrow").schema.metadata[LOG_ENDS.encode()]) == expected
    position, row = map(json.loads, (tmp_path / "offsets.jsonl").read_text().splitlines())
    assert position == {"log_ends": expected}
    assert row == {"group_id": "g", "topic": "t", "partition": 0, "committed_offset": 5, "metadata": None}
    with (tmp_path / "offsets.csv").open() as lines:
        assert [*csv.reader(lines)] == [["g", "t", "0", "5"]]


def test_json_lines_omit_bytes(tmp_path: Path) -> None:
    rows = pa.table({"group_id": ["g"], "members": [[{"id": "m"}]], "replay_state": [b"\xff"]})
    export(rows, {}, tmp_path / "groups.jsonl")
    [_, row] = (tmp_path / "groups.jsonl").read_text().splitlines()
    assert json.loads(row) == {"group_id": "g", "members": [{"id": "m"}]}


def test_a_pattern_selects_groups(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        export(table({("a1", "t", 0): 1, ("a2", "t", 0): 2, ("b", "t", 0): 3}), {}, tmp_path / f"o{suffix}")
        assert read(tmp_path / f"o{suffix}", "a*") == {("a1", "t", 0): 1, ("a2", "t", 0): 2}


def row(**changes: object) -> dict[str, Any]:
    return {"group_id": "g", "topic": "t", "partition": 0, "committed_offset": 1} | changes


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (row(partition=-1), "row 2: the partition is not from 0 to 2147483647"),
        (row(topic=""), "row 2: the topic is empty"),
        (row(topic=None), "row 2: a value is missing"),
        (row(committed_offset=None), "row 2: a value is missing"),
        (row(partition=7), "row 2: duplicate partition, see row 1"),
    ],
)
def test_rows_that_are_no_offsets_are_listed(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    rows = [row(partition=7), wrong]
    (tmp_path / "o.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "o.parquet")
    for name in ("o.jsonl", "o.parquet"):
        with pytest.raises(BadRequest, match="Invalid offsets in ") as refused:
            offsets_of_file(tmp_path / name, "*")
        assert message in str(refused.value)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_negative_offsets_are_read_because_they_are_written(tmp_path: Path, suffix: str) -> None:
    offsets = {("g", "t", 0): -1, ("g", "t", 1): -(2**63), ("h", "t", 0): 5}
    export(table(offsets), {1: 7}, tmp_path / f"o{suffix}")
    assert read(tmp_path / f"o{suffix}") == offsets


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_files_of_editors_and_spreadsheets_are_read(
    tmp_path: Path, encoding: str, line_end: str, separator: str
) -> None:
    lines = [separator.join(fields) for fields in (["g", "t", "0", "5"], ['"é"', "t", " 1 ", "6"])]
    (tmp_path / "o.csv").write_bytes(line_end.join(lines).encode(encoding))
    assert read(tmp_path / "o.csv") == {("g", "t", 0): 5, ("é", "t", 1): 6}
    rows = [json.dumps(row(partition=number)) for number in (0, 1)]
    (tmp_path / "o.jsonl").write_bytes(line_end.join(rows).encode(encoding))
    assert read(tmp_path / "o.jsonl") == {("g", "t", 0): 1, ("g", "t", 1): 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("g,t,0,1.2E+05", "invalid offset '1.2E+05'"),
        ("g,t,0,1120.0", "invalid offset '1120.0'"),
        ('g,t,0,"1,120"', "invalid offset '1,120'"),
        ("g,t,0,1 120", "invalid offset '1 120'"),
        ("g,t,0,", "invalid offset ''"),
        ("g,t,0", "3 fields"),
        ("# comment", "1 field,"),
        ("group,topic,partition,offset", "invalid partition 'partition'"),
        ("é,t,0,1", "not UTF-8"),
    ],
)
def test_lines_that_are_no_offsets_are_refused_with_the_reason(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "o.csv").write_bytes(f"g,t,7,1\n{line}\n".encode("cp1252"))
    with pytest.raises(BadRequest) as refused:
        offsets_of_file(tmp_path / "o.csv", "*")
    assert f"line 2: {reason}" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("o.txt", b"", "must end in .parquet, .arrow, .jsonl or .csv"),
        ("o.parquet", b"nothing", "Cannot read"),
        ("o.arrow", b"nothing", "Cannot read"),
        ("o.jsonl", b'{"group_id": 5', "Cannot read"),
        ("o.jsonl", b'{"group_id": 5}\n', "Cannot read"),
        ("o.jsonl", b"", "Cannot read"),
        ("o.csv", b"g,t,x,1\n", "line 1: invalid partition"),
        ("missing.csv", None, "No such file"),
        ("missing.parquet", None, "No such file"),
        ("missing.jsonl", None, "No such file"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadRequest, match=message):
        offsets_of_file(tmp_path / name, "*")


def test_columns_that_are_missing_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"group_id": ["g"], "offset": [1]}), tmp_path / "o.parquet")
    with pytest.raises(BadRequest, match="the columns topic, partition, committed_offset are missing"):
        offsets_of_file(tmp_path / "o.parquet", "*")


def test_only_offsets_are_written_as_csv_and_a_failed_write_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "groups.csv"
    path.write_text("before")
    with pytest.raises(BadRequest, match="Only offsets can be written as CSV"):
        export(pa.table({"group_id": ["g"]}), {}, path)
    with pytest.raises(BadRequest, match="line break"):
        export(table({("a\nb", "t", 0): 1}), {}, path)
    assert path.read_text() == "before"
    assert [*tmp_path.iterdir()] == [path]
