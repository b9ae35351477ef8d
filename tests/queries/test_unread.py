"""What a question answers about groups whose log partition was not in the folder that the lake was read from."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import offsetlake
from offsetlake.api.open_lake import OpenLake
from offsetlake.errors import NotInLake
from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import last_run
from offsetlake.lake.unread import listed
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from support.command_line import Run
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, plan_expiry, rows
from support.lakes import new_lake
from support.log.made_folders import write
from support.oracle.encoders import group_log_partition, offset_key, offset_value
from support.oracle.log_writer import Batch, Record

T = 1_700_000_000_000
GROUPS = [f"group-{number}" for number in range(120)]
READ = range(0, 50, 2)
IN_LOG = [name for name in GROUPS if group_log_partition(name, 50) in READ]
ELSEWHERE = next(name for name in GROUPS if group_log_partition(name, 50) not in READ)


def write_log(folder: Path, numbers: range) -> None:
    for number in numbers:
        names = [name for name in GROUPS if group_log_partition(name, 50) == number]
        records = [
            Record(at, T, offset_key(name, "t", 0), offset_value(1, 7, commit_timestamp=T))
            for at, name in enumerate(names)
        ]
        partition = LogPartition(OFFSETS_TOPIC, number)
        write(folder, (0, [Batch(records=tuple(records))] if records else []), partition=partition)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake that was read from every second partition."""
    folder = tmp_path_factory.mktemp("unread")
    write_log(folder / "log", READ)
    made = new_lake(folder / "lake")
    cycle(InProcess(), made, folder / "log")
    return made


def test_an_ingest_records_what_it_did_not_read(lake: Lake) -> None:
    run = last_run(lake, "ingest")
    assert run is not None
    assert run.log_partitions == 50
    assert run.absent == tuple((OFFSETS_TOPIC, number) for number in range(1, 50, 2))
    (note,) = run.notes
    assert note.startswith(f"NOT READ: {OFFSETS_TOPIC}-1, 3, 5, 7,")


@pytest.mark.parametrize(
    "question",
    [
        ("offsets",),
        ("groups",),
        ("groups", "--group", "group-*"),
        ("offsets", "--as-of", "2024-01-01"),
        ("history", "--group", IN_LOG[0], "--topic", "t", "--partition", "0"),
        ("sql", "SELECT count(*) FROM offsets"),
        ("check", "--suite", "after_compact"),
        ("expire", "--what-if", "--retention", "1d"),
        ("snapshot", "offsets.parquet"),
    ],
)
def test_answers_name_the_partitions_that_were_not_read(question: tuple[str, ...], lake: Lake, run: Run) -> None:
    code, _, err = run(*question, "--lake", str(lake.location))
    assert code == 0, err
    assert f"{OFFSETS_TOPIC}-1, 3, 5" in err


@pytest.mark.parametrize(
    "question",
    [
        ("offsets", "--group", ELSEWHERE),
        ("groups", "--group", ELSEWHERE),
        ("groups", "--group", ELSEWHERE, "--as-of", "2024-01-01"),
        ("offsets", "--group", ELSEWHERE, "--as-of", "2024-01-01"),
        ("history", "--group", ELSEWHERE, "--topic", "t", "--partition", "0"),
        ("diff", "--from", "2023-12-01", "--to", "2024-01-01", "--group", ELSEWHERE),
        ("audit", "changes", "--group", ELSEWHERE),
        ("cleanup", ELSEWHERE),
        ("reset", ELSEWHERE, "--topic", "t:0", "--to-offset", "5"),
        ("restore", ELSEWHERE, "--as-of", "2024-01-01"),
        ("undelete", ELSEWHERE),
    ],
)
def test_a_group_that_was_not_read_is_not_unknown(question: tuple[str, ...], lake: Lake, run: Run) -> None:
    code, _, err = run(*question, "--lake", str(lake.location))
    assert code == 3, err
    assert f"Nothing is known about group {ELSEWHERE!r}" in err
    assert f"{OFFSETS_TOPIC}-{group_log_partition(ELSEWHERE, 50)}," in err


@pytest.mark.parametrize("question", ["groups --group", "cleanup", "expire --what-if --group", "undelete"])
def test_groups_like_a_pattern_may_be_in_what_was_not_read(question: str, lake: Lake, run: Run) -> None:
    """Whichever log partition a group of the same name as the pattern would be in."""
    for pattern in ("a*", "b*", "c*"):
        code, _, err = run(*question.split(), pattern, "--lake", str(lake.location))
        assert code == 3, (pattern, err)
        assert f"No group like {pattern!r} was read, but such groups may be in {OFFSETS_TOPIC}-1, 3, 5" in err


@pytest.mark.parametrize(
    "question",
    [
        lambda lake: lake.offsets(),
        lambda lake: lake.as_of("2024-01-01"),
        lambda lake: lake.groups(),
        lambda lake: lake.groups(as_of="2024-01-01"),
        lambda lake: lake.history(IN_LOG[0], "t", 0),
        lambda lake: lake.diff("2023-12-01", "2024-01-01"),
        lambda lake: lake.audit("changes"),
        lambda lake: lake.sql("SELECT count(*) FROM offsets"),
        lambda lake: lake.transactions(),
        lambda lake: lake.alterations(),
        lambda lake: lake.audit_events(),
        lambda lake: lake.tombstones(),
        lambda lake: lake.runs(),
    ],
)
def test_answers_of_the_python_api_have_notes(question: Callable[[OpenLake], pa.Table], lake: Lake) -> None:
    (note,) = offsetlake.notes(question(offsetlake.open(str(lake.location))).slice(0, 1))
    assert note.startswith(f"NOT READ: {OFFSETS_TOPIC}-1, 3, 5")


def test_an_error_has_the_notes_of_the_answer(lake: Lake, run: Run) -> None:
    with pytest.raises(NotInLake) as raised:
        offsetlake.open(str(lake.location)).offsets(topic="other")
    assert [note[:8] for note in raised.value.__notes__] == ["NOT READ"]
    code, _, err = run("offsets", "--topic", "other", "--lake", str(lake.location))
    assert (code, [line[:8] for line in err.splitlines()]) == (2, ["NOT READ", "error: n"])


def test_a_group_that_would_have_been_read_is_unknown(lake: Lake, run: Run) -> None:
    name = next(each for number in range(99) if group_log_partition(each := f"other-{number}", 50) in READ)
    code, _, err = run("offsets", "--group", name, "--lake", str(lake.location))
    assert code == 2, err
    assert "was ever committed" in err


def test_partitions_that_are_added_to_the_folder_are_read(tmp_path: Path, run: Run) -> None:
    write_log(tmp_path / "log", range(0, 50, 2))
    lake = new_lake(tmp_path / "lake")
    cycle(InProcess(), lake, tmp_path / "log")
    write_log(tmp_path / "log", range(1, 50, 2))
    ingested, _ = cycle(InProcess(), lake, tmp_path / "log")
    assert (ingested.notes, ingested.absent, ingested.log_partitions) == ((), (), 50)
    code, out, err = run("offsets", "--group", ELSEWHERE, "--lake", str(lake.location))
    assert (code, err) == (0, "")
    assert ELSEWHERE in out


def test_missing_records_are_named_until_the_lake_is_complete(tmp_path: Path, run: Run) -> None:
    """Records at the end are read by a later run; those before the position of the lake stay missing."""
    group, where = GROUPS[0], LogPartition(OFFSETS_TOPIC, group_log_partition(GROUPS[0], 50))
    segments = [
        [Batch(records=(Record(at, T, offset_key(group, "t", 0), offset_value(1, at, commit_timestamp=T)),))]
        for at in range(4)
    ]
    log = tmp_path / "log"
    write_log(log, range(50))
    write(log, *((at, segments[at]) for at in range(4)), partition=where)
    for at in (1, 3):  # in the middle, and at the end
        (log / str(where) / f"{at:020}.log").rename(tmp_path / f"{at}.log")
    (log / str(where) / f"{1:020}.index").write_bytes(b"")
    (log / "replication-offset-checkpoint").write_text(f"0\n1\n{where.topic} {where.partition} 4\n")
    lake = new_lake(tmp_path / "lake")
    ingested, _ = cycle(InProcess(), lake, log)
    assert ingested.missing == ((*where, 1, 2), (*where, 3, 4))
    plan_expiry(InProcess(), lake)
    expiring = {row["group_id"] for row in rows(lake, "tombstones")}
    assert expiring == {name for name in GROUPS if group_log_partition(name, 50) != where.partition}
    code, _, err = run("offsets", "--group", group, "--lake", str(lake.location))
    assert (code, f"log offset 1 of {where} and log offset 3 of {where} were missing" in err) == (0, True)
    unknown = next(name for n in range(999) if group_log_partition(name := f"x-{n}", 50) == where.partition)
    code, _, err = run("offsets", "--group", unknown, "--lake", str(lake.location))
    assert (code, f"Nothing is known about group {unknown!r}: its records may be among" in err) == (3, True)
    for at in (1, 3):
        (tmp_path / f"{at}.log").rename(log / str(where) / f"{at:020}.log")
    ingested, _ = cycle(InProcess(), lake, log)
    assert ingested.missing == ((*where, 1, 2),)
    assert cycle(InProcess(), lake, log)[0].missing == ((*where, 1, 2),)


def test_numbers_are_listed_as_ranges() -> None:
    numbers = [0, 1, 2, 5, 7, 8]
    assert listed([("b", 3), *(("a", number) for number in numbers)]) == "a-0 to 2, 5, 7 to 8 and b-3"
