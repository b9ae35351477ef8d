"""How the data source plans its readers, and which options it takes."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BooleanType, IntegerType, StringType

from offsetlake.errors import BadRequest, LogUnavailable
from offsetlake.log import reading
from offsetlake.log.address import LogAddress
from offsetlake.log.disk import folder as log_folder
from offsetlake.log.disk.folder import FolderSlice, describe
from offsetlake.log.positions import OFFSETS_TOPIC, SHARE_STATE_TOPIC, LogPartition, OffsetRange
from offsetlake.log.reading import SliceGroup, _divided, _grouped, plan_readers, ranges_from_json, ranges_to_json
from offsetlake.log.spark_source import CommitLogReader, CommitLogSource
from support.log.made_folders import write
from support.oracle.log_writer import Batch, Record

FIXTURES = Path(__file__).parents[1] / "fixtures"
PARTITIONS = st.builds(LogPartition, st.sampled_from([OFFSETS_TOPIC, SHARE_STATE_TOPIC]), st.integers(0, 99))
RANGES = st.builds(OffsetRange, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))


# --- plans ---


def piece(size: int) -> FolderSlice:
    return FolderSlice(LogPartition(OFFSETS_TOPIC, 0), OffsetRange(0, 1), "segment", 0, size)


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 80), max_size=30), room=st.integers(1, 50))
def test_slices_are_grouped_in_order_and_up_to_a_size(sizes: list[int], room: int) -> None:
    pieces = [piece(size) for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "READER_BYTES", room)
        groups = [group.slices for group in _grouped([*pieces])]
    assert [each for group in groups for each in group] == pieces
    for at, group in enumerate(groups):
        assert group
        assert len(group) == 1 or sum(each.size for each in group[:-1]) <= room
        if sum(each.size for each in group) > room:
            assert len(group) == 1
        if at:
            assert sum(each.size for each in groups[at - 1]) + group[0].size > room


@given(sizes=st.lists(st.integers(1, 80), min_size=1, max_size=60), number=st.integers(1, 12))
def test_slices_are_divided_in_order_into_groups_of_about_the_same_size(sizes: list[int], number: int) -> None:
    pieces = [piece(size) for size in sizes]
    groups = [group.slices for group in _divided([*pieces], number)]
    assert [each for group in groups for each in group] == pieces
    assert len(groups) <= number
    assert all(groups)
    for group in groups:
        assert sum(each.size for each in group) <= sum(sizes) / number + max(sizes)
    assert len(groups) == number or max(sizes) > sum(sizes) / number / 2


def test_the_number_of_groups_is_a_multiple_of_those_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    address, ranges = LogAddress(folder=FIXTURES / "real-log"), describe(FIXTURES / "real-log").ranges
    monkeypatch.setattr(reading, "READER_BYTES", 3000)
    alone = plan_readers(address, ranges)
    assert len(alone) > 2
    at_once = len(alone) - 1
    assert len(plan_readers(address, ranges, at_once)) in range(len(alone), 2 * at_once + 1)
    monkeypatch.setattr(reading, "READER_BYTES", 1 << 30)
    assert len(plan_readers(address, ranges, at_once)) == 1


def test_one_large_partition_gives_several_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_folder, "MAX_SLICE_BYTES", 2000)
    monkeypatch.setattr(reading, "READER_BYTES", 4000)
    write(tmp_path, [Batch(records=(Record(i, 0, b"k", b"v" * 100),)) for i in range(200)])
    reader = CommitLogReader({"log": str(tmp_path), "records": "others"})
    groups = reader.partitions()
    assert len(groups) > 5
    assert sum(piece.size for group in groups for piece in group.value.slices) == 200 * 171
    offsets = [batch.column("log_offset").to_pylist() for group in groups for batch in reader.read(group)]
    assert sorted(offset for of_batch in offsets for offset in of_batch) == list(range(200))


def test_many_small_partitions_give_one_reader() -> None:
    address = LogAddress(folder=FIXTURES / "real-log")
    ranges = describe(FIXTURES / "real-log").ranges
    (group,) = plan_readers(address, ranges)
    assert {piece.log_partition for piece in group.slices} == {w for w, (start, end) in ranges.items() if start < end}


def test_a_plan_of_nothing_is_one_reader_without_slices(tmp_path: Path) -> None:
    assert plan_readers(LogAddress(folder=FIXTURES / "real-log"), {}) == []
    for records in ("offset_commits", "others"):
        reader = CommitLogReader({"log": str(FIXTURES / "real-log"), "records": records, "ranges": "{}"})
        (partition,) = reader.partitions()
        assert partition.value == SliceGroup([])
        assert list(reader.read(partition)) == []
    write(tmp_path, (7, []))
    assert [each.value for each in CommitLogReader({"log": str(tmp_path)}).partitions()] == [SliceGroup([])]


def test_offset_commits_are_sought_in_their_topic_only() -> None:
    def topics(records: str) -> set[str]:
        groups = CommitLogReader({"log": str(FIXTURES / "real-log"), "records": records}).partitions()
        return {piece.log_partition.topic for group in groups for piece in group.value.slices}

    assert topics("offset_commits") == {OFFSETS_TOPIC}
    assert topics("others") == {OFFSETS_TOPIC, SHARE_STATE_TOPIC}


# --- options ---


@given(ranges=st.dictionaries(PARTITIONS, RANGES, max_size=5))
def test_ranges_come_back_from_json(ranges: dict[LogPartition, OffsetRange]) -> None:
    back = ranges_from_json(ranges_to_json(ranges))
    assert back == ranges
    assert list(back) == list(ranges)
    assert all(type(where) is LogPartition and type(held) is OffsetRange for where, held in back.items())


def test_ranges_in_json() -> None:
    text = f'{{"{OFFSETS_TOPIC}-0": [5, 100]}}'
    assert ranges_to_json({LogPartition(OFFSETS_TOPIC, 0): OffsetRange(5, 100)}) == text
    assert ranges_from_json(text) == {LogPartition(OFFSETS_TOPIC, 0): OffsetRange(5, 100)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "7",
        "null",
        '"a-0"',
        '{"a-0": 5}',
        '{"a-0": [1]}',
        '{"a-0": [1, 2, 3]}',
        '{"a-0": ["x", 2]}',
        '{"a-0": [null, 2]}',
        '{"a-x": [1, 2]}',
        '{"a": [1, 2]}',
        '{"a-0": [1, 2]',
    ],
)
def test_ranges_that_are_none(text: str) -> None:
    with pytest.raises(BadRequest, match="ranges must be JSON such as") as caught:
        ranges_from_json(text)
    assert repr(text) in str(caught.value)


def test_options_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="option records is 'all': offset_commits or others is known"):
        CommitLogReader({"log": str(tmp_path), "records": "all"})
    with pytest.raises(BadRequest, match="option records is 'all'"):
        CommitLogSource({"log": str(tmp_path), "records": "all"}).schema()
    with pytest.raises(BadRequest):
        CommitLogReader({"records": "others"})
    with pytest.raises(BadRequest, match="ranges must be JSON"):
        CommitLogReader({"log": str(tmp_path), "ranges": "7"}).partitions()
    with pytest.raises(LogUnavailable, match="does not contain a log"):
        CommitLogReader({"log": str(tmp_path)}).partitions()


def test_the_columns() -> None:
    commits = CommitLogSource({}).schema()
    assert commits == CommitLogSource({"records": "offset_commits"}).schema()
    assert (commits["log_partition"].dataType, commits["superseded"].dataType) == (IntegerType(), BooleanType())
    others = CommitLogSource({"records": "others"}).schema()
    assert others["log_topic"].dataType == StringType()
    assert others.names[:4] == ["log_topic", "log_partition", "log_offset", "log_timestamp"]
