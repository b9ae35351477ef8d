"""Offsets and groups that quarantined records leave unknown: every change refuses them, and every answer names them."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from e2e.logs.test_quarantined_records import NEWER, QuarantineLog, commit, metadata, unread
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.changes.export_offsets import committed_offsets
from offsetlake.pipeline.changes.repair import plan_repair
from offsetlake.pipeline.changes.reset import as_of
from offsetlake.pipeline.changes.translation.translate import source_offsets
from offsetlake.pipeline.compact.job import compact
from offsetlake.queries.history.before import LogPosition
from support.command_line import Run
from support.console.served import Page, get, served
from support.e2e.in_process import InProcess
from support.e2e.parts_log import TIME
from support.oracle.encoders import group_log_partition, group_metadata_key, offset_key, offset_value
from support.oracle.log_writer import Batch, Record, batch_bytes
from support.queries.lakes import end, small_lake

GROUP, UNKNOWN, NEW, FINE = [f"g{number}" for number in range(999) if group_log_partition(f"g{number}", 50) == 0][:4]
T0 = "the newest offset of {} for t-0 is unknown"
HEADERS = ((b"commit.id", struct.pack(">q", 1)), (b"commit.size", struct.pack(">i", 2)))
KEYS = ("group_id", "topic", "partition")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> QuarantineLog:
    """A log in which t:0 of a group, and the state of another one, are unknown; t:2 was deleted before."""
    made = QuarantineLog(tmp_path_factory.mktemp("unknown"))
    made.batch(commit(0, 5, GROUP), commit(1, 6, GROUP), commit(2, 7, GROUP), commit(2, None, GROUP))
    made.batch(commit(0, 4, UNKNOWN), metadata(group=UNKNOWN), commit(0, 3, FINE))
    made.batch(unread(offset_key(GROUP, "t", 0)), unread(offset_key(GROUP, "t", 2)))
    made.batch(unread(group_metadata_key(UNKNOWN)))
    made.batch((*commit(0, 9, GROUP)[:2], HEADERS))  # one of two parts
    made.cycle()
    (made.folder / "offsets.csv").write_text(f'"{GROUP}","t",0,2\n"{GROUP}","t",1,2\n"{UNKNOWN}","t",0,2\n')
    return made


@pytest.mark.parametrize(
    ("command", "refused", "planned"),
    [
        (["reset", GROUP, "--topic", "t:0", "--to-offset", "9"], {(GROUP, 0)}, set()),
        (["reset", GROUP, "--all-topics", "--shift-by", "-1"], {(GROUP, 0)}, {(GROUP, 1)}),
        (["reset", GROUP, "--all-topics", "--to-current"], {(GROUP, 0)}, {(GROUP, 1)}),
        (["reset", UNKNOWN, "--topic", "t:0", "--to-offset", "9"], {(UNKNOWN, 0)}, set()),
        (["reset", NEW, "--from-group", GROUP], {(NEW, 0)}, {(NEW, 1)}),
        (["reset", NEW, "--from-group", UNKNOWN], {(NEW, 0)}, set()),
        (["reset", "--from-file", "offsets.csv"], {(GROUP, 0), (UNKNOWN, 0)}, {(GROUP, 1)}),
        (["restore", GROUP, "--as-of", str(TIME + 1)], {(GROUP, 0)}, {(GROUP, 1)}),
        (["restore", UNKNOWN, "--as-of", str(TIME + 4)], {(UNKNOWN, 0)}, set()),
        (["undelete", GROUP], {(GROUP, 2)}, set()),
        (["import", "offsets.csv"], {(GROUP, 0), (UNKNOWN, 0)}, {(GROUP, 1)}),
        (["cleanup", GROUP], {(GROUP, None), (GROUP, 0), (GROUP, 1)}, set()),
        (["cleanup", UNKNOWN], {(UNKNOWN, None), (UNKNOWN, 0)}, set()),
    ],
    ids=lambda value: " ".join(value[:1] + value[2:3]) if isinstance(value, list) else "",
)
def test_changes_of_what_is_unknown_are_refused(
    command: list[str],
    refused: set[tuple[str, int | None]],
    planned: set[tuple[str, int | None]],
    log: QuarantineLog,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(log.folder)
    options = ["--lake", str(log.lake.location), "--log", str(log.folder / "log"), "--format", "json"]
    _, out, err = run(*command, *options)
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows, err
    reasons = {(row["group_id"], row.get("partition")): row["reason"] for row in rows}
    assert {key for key, reason in reasons.items() if reason and "could not be decoded" in reason} == refused
    outcomes = {(row["group_id"], row.get("partition")) for row in rows if row["outcome"] in ("planned", "unchanged")}
    assert outcomes == planned


def test_sources_of_other_places_name_what_is_unknown(log: QuarantineLog) -> None:
    by_partition = {row["partition"]: row["unknown"] for row in source_offsets(log.lake, GROUP).to_pylist()}
    assert T0.format(GROUP) in by_partition[0]
    assert by_partition[1] is None
    exported = {
        (row["group_id"], row["partition"]): row["reason"] for row in committed_offsets(log.lake, "*").to_pylist()
    }
    assert "could not be decoded" in exported[GROUP, 0]
    assert "could not be decoded" in exported[UNKNOWN, 0]
    assert exported[GROUP, 1] is None
    assert exported[FINE, 0] is None


def test_repair_does_not_write_an_older_value(log: QuarantineLog) -> None:
    (row,) = plan_repair(log.lake, 0).to_pylist()
    assert (row["group_id"], row["partition"]) == (GROUP, 0)
    assert T0.format(GROUP) in row["reason"]


def test_group_without_a_decoded_record_is_not_one_that_never_committed(tmp_path: Path, run: Run) -> None:
    log = QuarantineLog(tmp_path)
    log.batch(unread(offset_key(NEW, "t", 0)), commit(0, 5, GROUP))
    log.cycle()
    lake, of_key = ["--lake", str(log.lake.location)], ["--group", NEW, "--topic", "t", "--partition"]
    for command in (["offsets", "--group", NEW], ["history", *of_key, "0"]):
        code, _, err = run(*command, *lake)
        assert (code, "no commit of group" in err, "can be decoded: the table quarantine has records of it" in err) == (
            2,
            True,
            True,
        )
    code, _, err = run("history", *of_key, "1", *lake)
    assert (code, "was ever committed" in err) == (2, True)
    code, _, err = run("groups", "--group", NEW, *lake)
    assert (code, T0.format(NEW) in err) == (0, True)


def test_offsets_of_the_past_that_are_unknown_are_not_restored(tmp_path: Path, run: Run) -> None:
    """The record that cannot be decoded was replaced later, so the offset is known now, but was not in between."""
    log = QuarantineLog(tmp_path)
    log.batch(commit(0, 5, GROUP), unread(offset_key(GROUP, "t", 0)), commit(0, 60, GROUP))
    log.batch(commit(1, 6, GROUP), unread(offset_key(GROUP, "t", 1)), commit(1, None, GROUP))
    log.batch(commit(2, 7, GROUP), commit(2, 8, GROUP))
    log.cycle()
    options = ["--lake", str(log.lake.location), "--log", str(log.folder / "log"), "--format", "json"]

    def planned(*command: str) -> dict[int, tuple[str, str | None]]:
        _, out, _ = run(*command, *options)
        rows = map(json.loads, out.splitlines())
        return {row["partition"]: (row["outcome"], row["reason"]) for row in rows}

    assert planned("restore", GROUP, "--as-of", str(TIME), "--topic", "t:0") == {0: ("planned", None)}
    outcome, reason = planned("restore", GROUP, "--as-of", str(TIME + 1), "--topic", "t:0")[0]
    assert (outcome, "a record at log offset 1 of" in str(reason)) == ("refused", True)
    assert "the offset at that time is unknown" in str(reason)
    assert planned("restore", GROUP, "--as-of", str(TIME + 2), "--topic", "t:0")[0][0] == "unchanged"
    for position, expected in ((1, "planned"), (2, "refused")):
        before = as_of(log.lake, {GROUP: 0}, LogPosition(0, position), {"t": [0]}, 0).to_pylist()
        assert ["refused" if row["reason"] else row["outcome"] for row in before] == [expected]
    assert planned("undelete", GROUP)[1][0] == "refused"
    then = {row["partition"]: row["unknown"] for row in source_offsets(log.lake, GROUP, TIME + 6).to_pylist()}
    assert [then[0], then[2]] == [None, None]
    (unknown,) = (row["unknown"] for row in source_offsets(log.lake, GROUP, TIME + 1).to_pylist())
    assert "the offset at that time is unknown" in unknown
    arguments = ["--group", GROUP, "--topic", "t", "--partition"]
    code, _, err = run("history", *arguments, "0", "--lake", str(log.lake.location))
    assert (code, "The history lacks 1 record of it (0:1): they cannot be decoded" in err) == (0, True)
    code, _, err = run("history", *arguments, "2", "--lake", str(log.lake.location))
    assert (code, "The history lacks" in err) == (0, False)


@pytest.mark.parametrize(
    "question",
    [
        ("offsets",),
        ("groups",),
        ("audit", "changes"),
        ("diff", "--from", str(TIME), "--to", str(TIME + 3)),
        ("snapshot", "offsets.parquet"),
        ("check", "--suite", "after_compact"),
        ("report", "--to", "report.html"),
    ],
)
def test_answers_name_what_is_unknown(
    question: tuple[str, ...], log: QuarantineLog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(log.folder)
    options = ["--log", str(log.folder / "log")] if question[0] == "snapshot" else []
    code, _, err = run(*question, *options, "--lake", str(log.lake.location))
    assert code == 0, err
    told = Page((log.folder / "report.html").read_text()).text if question[0] == "report" else err
    assert "Some offsets or groups are unknown, and nothing is decided about them" in told


def test_pages_of_the_console_name_what_is_unknown(log: QuarantineLog) -> None:
    note = "Some offsets or groups are unknown"
    with served(Path(str(log.lake.location))) as port:
        assert note in Page(get(port, "/").text).text
        text = Page(get(port, f"/group?group={GROUP}").text).text
        assert note in text
        assert f"of {GROUP} for t-" in text
        assert note not in Page(get(port, f"/group?group={FINE}").text).text


def test_lag_of_an_unknown_offset_is_unknown(tmp_path: Path, run: Run) -> None:
    def committed(log_offset: int, partition: int) -> dict[str, Any]:
        place: dict[str, Any] = {"group_id": "g", "topic": "t", "partition": partition}
        return place | {"kind": "commit", "committed_offset": 5, "metadata": "", "commit_timestamp": 0} | {
            "value_version": 3, "log_offset": log_offset, "log_timestamp": 1000,
        }  # fmt: skip

    key = offset_key("g", "t", 0)
    quarantined = {
        "log_offset": 9,
        "reason": "the version 9 is unknown",
        "key_bytes": key,
        "value_bytes": b"",
        "log_timestamp": 1,
    }
    small_lake(
        tmp_path / "lake",
        offset_commits=[committed(0, 0), committed(1, 1)],
        quarantine=[quarantined | {"is_control": False}],
        log_ends=[end(1, 10), end(1, 10, partition=1)],
        runs=[{"run_id": 1, "job": "ingest", "started_at": 1, "finished_at": 2}],
    )
    compact(InProcess, Lake.create(tmp_path / "lake"), lambda _: None)  # type: ignore[arg-type]
    code, out, err = run("lag", "--partitions", "--format", "json", "--lake", str(tmp_path / "lake"))
    assert code == 0, err
    rows = {row["partition"]: row for row in map(json.loads, out.splitlines())}
    unknown = rows[0]
    assert (unknown["status"], unknown["why"]) == ("UNKNOWN", "committed offset unknown")
    assert (unknown["lag"], unknown["lag_at_most"]) == (None, 10)
    assert rows[1]["lag"] == 5
    assert "The lag of 1 of 2 partitions is unknown: their committed offsets are unknown" in err
    assert T0.format("g") in err
    _, out, _ = run("lag", "--format", "json", "--lake", str(tmp_path / "lake"))
    (group,) = map(json.loads, out.splitlines())
    assert (group["lag"], group["lag_unknown"], group["lag_at_most"]) == (5, 1, 15)


def test_records_that_a_later_version_decodes_are_named(tmp_path: Path, run: Run) -> None:
    """In the lake of an earlier version, a record and a batch that are decoded today, and others."""
    topic, value = OFFSETS_TOPIC, offset_value(3, 5, commit_timestamp=TIME)
    batch = batch_bytes(Batch(records=(Record(30, TIME, offset_key("b", "t", 0), value),)))
    quarantined: list[dict[str, Any]] = [
        {"log_offset": 10, "key_bytes": offset_key("a", "t", 0), "value_bytes": value, "log_timestamp": TIME},
        {"log_offset": 11, "key_bytes": offset_key("a", "t", 1), "value_bytes": NEWER, "log_timestamp": TIME},
        {"log_offset": 30, "key_bytes": None, "value_bytes": batch, "log_timestamp": None},
        {"log_offset": 40, "key_bytes": offset_key("c", "t", 0), "value_bytes": value, "log_timestamp": TIME},
    ]
    superseding = {
        "group_id": "c",
        "topic": "t",
        "partition": 0,
        "committed_offset": 1,
        "metadata": "",
        "log_offset": 41,
    }
    where = {"topic": topic, "partition": 0}
    ingested = {
        "run_id": 1, "job": "ingest", "started_at": 1, "finished_at": 2, "gaps": [],
        "ranges": [where | {"start": 0, "end": 50}], "positions": [where | {"position": 50, "tail_checksum": None}],
    }  # fmt: skip
    small_lake(
        tmp_path / "lake",
        quarantine=[row | {"reason": "r", "is_control": False, "log_topic": topic} for row in quarantined],
        offset_commits=[
            superseding | {"kind": "commit", "commit_timestamp": 0, "value_version": 3, "log_timestamp": 9}
        ],
        runs=[ingested],
    )
    compact(InProcess, Lake.create(tmp_path / "lake"), lambda _: None)  # type: ignore[arg-type]
    code, _, err = run("check", "--suite", "after_compact", "--lake", str(tmp_path / "lake"))
    assert code == 0, err
    assert "This version of offsetlake can decode 2 of these records" in err
    assert "read the log into a new one, with `offsetlake run --lake DIR`" in err
