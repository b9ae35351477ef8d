"""Groups whose log partition changed because partitions were added: the log partition that coordinates them counts."""

import json
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewPartitions

from offsetlake.lake.history.moved_groups import apart
from offsetlake.lake.lake import Lake
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.pipeline.compact.rebuild import rebuild
from offsetlake.queries.exploring.commits import Filters, commits_page, matching
from offsetlake.queries.exploring.group_state import group_at
from offsetlake.queries.exploring.keys import Key
from offsetlake.queries.exploring.series import series
from support.broker.broker import Broker
from support.broker.data_folder import copy_log
from support.broker.workload import create_topic, simple_commit
from support.command_line import Run
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle
from support.lakes import new_lake
from support.log.made_folders import write
from support.long_cases import long_cases
from support.oracle.encoders import group_log_partition, offset_key, offset_value
from support.oracle.log_writer import Batch, Record
from support.queries.lakes import small_lake

T = 1_700_000_000_000
BEFORE, AFTER = 5, 7
GROUPS = [f"group-{number}" for number in range(40)]
MOVED = [name for name in GROUPS if group_log_partition(name, BEFORE) != group_log_partition(name, AFTER)]
RETURNED, DELETED, SILENT = MOVED[:10], MOVED[10:12], MOVED[12:]
"""Groups that committed again after partitions were added, that did and were deleted, and that did not."""


def commit(name: str, partition: int, value: int | None, at: int) -> tuple[int, bytes, bytes | None]:
    return at, offset_key(name, "t", partition), None if value is None else offset_value(1, value, commit_timestamp=at)


def write_log(folder: Path, records: Collection[tuple[int, int, bytes, bytes | None]], partitions: int) -> None:
    """Write records, each with the number of its log partition, a timestamp, key and value."""
    for number in range(partitions):
        rows = [row[1:] for row in records if row[0] == number]
        batches = [Batch(records=(Record(offset, *row),)) for offset, row in enumerate(rows)]
        write(folder, (0, batches), partition=LogPartition(OFFSETS_TOPIC, number))


OLD = [
    (group_log_partition(name, BEFORE), *commit(name, partition, 10 + partition, T))
    for name in GROUPS
    for partition in range(2)
]
NEW = [
    *((group_log_partition(name, AFTER), *commit(name, 0, 20, T + 1000)) for name in [*RETURNED, *DELETED]),
    *((group_log_partition(name, AFTER), *commit(name, 0, None, T + 2000)) for name in DELETED),
]
EXPECTED = {
    (name, partition): 10 + partition for name in GROUPS if name not in RETURNED + DELETED for partition in range(2)
} | {(name, 0): 20 for name in RETURNED}


@pytest.fixture(scope="module", params=["one ingest", "two ingests"])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("moved")
    made = new_lake(folder / "lake")
    if request.param == "two ingests":
        write_log(folder / "log", OLD, BEFORE)
        cycle(InProcess(), made, folder / "log")
    write_log(folder / "log", OLD + NEW, AFTER)
    cycle(InProcess(), made, folder / "log")
    return made


def offsets(run: Run, lake: Lake, *options: str) -> dict[tuple[str, int], int]:
    code, out, err = run("offsets", "--lake", str(lake.location), "--format", "json", *options)
    assert code == 0, err
    assert OFFSETS_TOPIC not in err, "nothing is missing"
    rows = [json.loads(line) for line in out.splitlines()]
    found = {(row["group_id"], row["partition"]): row["committed_offset"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def test_each_key_has_the_value_of_the_coordinating_log_partition(lake: Lake, run: Run) -> None:
    assert offsets(run, lake) == EXPECTED


def test_each_group_is_listed_once(lake: Lake, run: Run) -> None:
    code, out, _ = run("groups", "--lake", str(lake.location), "--format", "json")
    assert code == 0
    rows = {row["group_id"]: row["offsets"] for row in map(json.loads, out.splitlines())}
    assert len(rows) == len(out.splitlines())
    assert {name: count for name, count in rows.items() if count} == {
        name: sum(key[0] == name for key in EXPECTED) for name in {name for name, _ in EXPECTED}
    }


def test_before_partitions_were_added_the_former_log_partition_counts(lake: Lake, run: Run) -> None:
    before = {(name, partition): 10 + partition for name in GROUPS for partition in range(2)}
    assert offsets(run, lake, "--as-of", str(T + 10)) == before
    assert offsets(run, lake, "--as-of", str(T + 3000)) == EXPECTED
    assert offsets(run, lake, "--as-of", str(T + 10), "--group", RETURNED[0]) == {
        (RETURNED[0], 0): 10,
        (RETURNED[0], 1): 11,
    }
    assert offsets(run, lake, "--as-of", str(T + 3000), "--group", RETURNED[0]) == {(RETURNED[0], 0): 20}


def test_history_has_all_records_the_newest_first(lake: Lake, run: Run) -> None:
    options = ("--group", RETURNED[0], "--topic", "t", "--partition", "0")
    code, out, _ = run("history", "--lake", str(lake.location), "--format", "json", *options)
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["committed_offset"], row["previous_offset"]) for row in rows] == [(20, None), (10, None)]


@pytest.mark.parametrize(
    "filters",
    [
        Filters(),
        *long_cases((Filters(since_ms=0), Filters(event="commit"))),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_kept", [False, True], ids=["read", "kept"])
def test_pages_of_commits_continue_in_the_former_log_partition(lake: Lake, is_kept: bool, filters: Filters) -> None:
    """Also if its number is higher than that of the coordinating one."""
    assert {group_log_partition(name, BEFORE) < group_log_partition(name, AFTER) for name in RETURNED} == {True, False}
    for name in RETURNED:
        key, pages, before, more = Key(name, "t", 0), [], "", True
        every = matching(lake, key, filters) if is_kept else None
        while more:
            page, more = commits_page(lake, key, before, filters, 1, every)
            pages.append(page["committed_offset"].to_pylist())
            before = f"{page['log_partition'][-1]}:{page['log_offset'][-1]}"
        assert pages == [[20], [10]]


def test_a_chart_ends_with_the_coordinating_log_partition(lake: Lake) -> None:
    ends = pa.table({"asked_timestamp": [T + 10, T + 3000], "end_offset": [100, 100], "start_offset": [0, 0]})
    for name in RETURNED:
        shown = series(lake, name, "t", 0, ends=ends)
        assert shown.steps["new_offset"].to_pylist() == [10, 20]
        assert shown.steps["old_offset"].to_pylist() == [None, None]
        assert shown.ends["lag"].to_pylist() == [90, 80]
        assert not shown.marks.num_rows


def test_the_members_at_an_instant_are_those_of_its_coordinator(tmp_path: Path) -> None:
    name = next(name for name in GROUPS if group_log_partition(name, 2) == 0)

    def generation(number: int, log_partition: int, log_offset: int) -> dict[str, object]:
        value = {"protocolType": "consumer", "generation": number, "protocol": None, "leader": None, "members": []}
        return {
            "group_id": name, "record_name": "GroupMetadata", "kind": "value", "key": json.dumps({"group": name}),
            "value": json.dumps(value), "log_partition": log_partition, "log_offset": log_offset,
            "log_timestamp": T + number,
        }  # fmt: skip

    run = {"run_id": 1, "job": "ingest", "started_at": T, "finished_at": T, "log_partitions": 2, "grown": True}
    lake = small_lake(tmp_path, runs=[run], group_records=[generation(7, 1, 500), generation(9, 0, 3)])
    for instant, expected in ((T + 8, 7), (T + 9, 9)):
        group, _ = group_at(lake, name, instant)
        assert group is not None
        assert group["generation"] == expected


def test_groups_at_an_instant_are_listed_once(lake: Lake, run: Run) -> None:
    for instant, groups in ((T + 10, GROUPS), (T + 3000, [name for name in GROUPS if name not in DELETED])):
        code, out, _ = run("groups", "--lake", str(lake.location), "--format", "json", "--as-of", str(instant))
        assert code == 0
        rows = [json.loads(line) for line in out.splitlines()]
        assert len({row["group_id"] for row in rows}) == len(rows)
        assert sorted(row["group_id"] for row in rows if row["offsets"]) == sorted(groups)


@pytest.mark.parametrize("options", [("--suite", "after_compact"), ("--suite", "after_compact", "--full")])
def test_the_state_is_consistent(options: tuple[str, ...], lake: Lake, run: Run) -> None:
    code, out, err = run("check", "--lake", str(lake.location), *options)
    assert code == 0, out + err


def test_a_rebuild_has_the_same_rows(lake: Lake, run: Run) -> None:
    rebuild(InProcess, lake, lambda _: None, ["offsets", "groups"])  # type: ignore[arg-type]
    assert offsets(run, Lake.open(lake.location)) == EXPECTED


def test_a_commit_of_a_coordinator_with_the_former_number_is_not_in_force(tmp_path: Path, run: Run) -> None:
    lake = new_lake(tmp_path / "lake")
    write_log(tmp_path / "log", OLD + NEW, AFTER)
    cycle(InProcess(), lake, tmp_path / "log")
    name = RETURNED[0]
    late = (group_log_partition(name, BEFORE), *commit(name, 1, 99, T + 5000))
    write_log(tmp_path / "log", [*OLD, *NEW, late], AFTER)
    cycle(InProcess(), lake, tmp_path / "log")
    assert offsets(run, lake) == EXPECTED


@pytest.mark.broker
@pytest.mark.long
def test_a_broker_answers_from_the_same_log_partition(tmp_path: Path, run: Run) -> None:
    (tmp_path / "broker").mkdir()
    lake, log = new_lake(tmp_path / "lake"), tmp_path / "log"
    groups = GROUPS[:12]
    with Broker(tmp_path / "broker", {"offsets.topic.num.partitions": str(BEFORE)}) as broker:
        create_topic(broker.bootstrap, "t", 2)
        for name in groups:
            simple_commit(broker.bootstrap, name, {("t", 0): 10, ("t", 1): 11})
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        (added,) = admin.create_partitions([NewPartitions(OFFSETS_TOPIC, AFTER)]).values()
        added.result(60)
        broker.restart()
        again = groups[:6]
        for name in again:
            simple_commit(broker.bootstrap, name, {("t", 0): 20})
        answered = {
            (name, place.partition): place.offset
            for name in groups
            for (_, future) in admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)]).items()
            for place in future.result(60).topic_partitions
        }
        broker.stop()
        copy_log(broker.data_dir, log)
    cycle(InProcess(), lake, log)
    found = offsets(run, lake)
    silent = {name for name in groups[6:] if group_log_partition(name, BEFORE) != group_log_partition(name, AFTER)}
    assert silent, "without such groups the test would prove less"
    assert answered == {key: value for key, value in found.items() if key[0] not in silent}
    assert {key: value for key, value in found.items() if key[0] in silent} == {
        (name, partition): 10 + partition for name in silent for partition in range(2)
    }, "the coordinators do not know the offsets of groups that have not committed since, which are shown"


def test_log_partitions_of_one_group_are_read_apart() -> None:
    pairs = {frozenset((0, 50)), frozenset((1, 51)), frozenset((50, 51))}
    assert apart([0, 1, 50, 51, 52], pairs) == [[0, 1, 52], [50], [51]]
    assert apart([0, 1, 50], set()) == [[0, 1, 50]]
