"""The command line: standard output, standard error, exit codes and formats."""

import csv
import io
import json
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from offsetlake import errors
from offsetlake.lake.definitions import definition
from offsetlake.lake.lake import Lake
from offsetlake.pipeline import runner
from offsetlake.queries import questions
from offsetlake.util import times
from support.command_line import Run, without_progress
from support.e2e.in_process import NoSpark
from support.oracle.log_reader import read_log
from support.oracle.replay import replay
from support.queries.lakes import commit, marker, small_lake, tombstone

FIXTURES = Path(__file__).parents[1] / "fixtures"
HISTORY = "history --lake {lake} --group warehouse --topic shipments --partition 0 --format json"
COMMAND = [sys.executable, "-m", "offsetlake.cli"]
SECONDS = 240


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small lake in the default folder."""
    monkeypatch.chdir(tmp_path)
    small_lake(
        tmp_path / "lake",
        offset_commits=[
            commit(1_000, 5),
            commit(2_000, 3, 7),
            tombstone(4_000),
            commit(5_000, 4, metadata="a,b\n\x1b[31m"),
        ],
        transaction_markers=[marker(3_000, "COMMIT", 7)],
        offsets=[
            {
                "group_id": "g",
                "topic": "t",
                "partition": 0,
                "committed_offset": 4,
                "log_offset": 5_000,
                "metadata": "a,b\n\x1b[31m",
                "commit_timestamp": 1_700_000_000_123,
            },
        ],
        groups=[{"group_id": "g"}, {"group_id": "[red]x", "subscribed_topics": ["t"]}],
        quarantine=[{"log_offset": 6_000, "reason": "odd", "key_bytes": b"\x00\xff"}],
    )
    return tmp_path / "lake"


@pytest.mark.usefixtures("lake")
def test_json_has_an_object_per_line_with_all_columns(run: Run) -> None:
    code, out, err = run("offsets", "--format", "json")
    assert (code, err) == (0, "")
    (row,) = [json.loads(line) for line in out.splitlines()]
    assert list(row) == list(definition("offsets").column_names)
    assert (row["metadata"], row["commit_timestamp"], row["leader_epoch"]) == ("a,b\n\x1b[31m", 1_700_000_000_123, None)
    assert json.loads(run("sql", "SELECT key_bytes, log_offset FROM quarantine", "--format", "json")[1]) == {
        "key_bytes": "00ff", "log_offset": 6_000,
    }  # fmt: skip


@pytest.mark.usefixtures("lake")
def test_csv_has_a_header_and_all_columns(run: Run) -> None:
    code, out, err = run("groups", "--format", "csv")
    assert (code, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["group_id"], row["subscribed_topics"], row["offsets"]) for row in rows] == [
        ("[red]x", '["t"]', "0"),
        ("g", "[]", "1"),
    ]
    assert list(csv.reader(io.StringIO(run("offsets", "--format", "csv")[1])))[1][5] == "a,b\n\x1b[31m"


@pytest.mark.usefixtures("lake")
def test_table_aligns_numbers_and_escapes_controls(run: Run) -> None:
    code, out, err = run("offsets")
    assert (code, err) == (0, "")
    head, row = out.splitlines()
    assert head.split() == [
        "group_id", "topic", "partition", "committed_offset", "metadata", "commit_timestamp", "log_partition",
        "log_offset",
    ]  # fmt: skip
    assert row.split() == ["g", "t", "0", "4", "a,b\\n\\x1b[31m", "2023-11-14T22:13:20.123Z", "0", "5000"]
    assert head.index("committed_offset") + len("committed_offset") == row.index(" 4 ") + 2, (
        "numbers end under the name"
    )


@pytest.mark.long
@pytest.mark.usefixtures("lake")
def test_terminal_table_has_a_rule_and_no_markup() -> None:
    main_end, terminal_end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150"}
    done = subprocess.run(
        [*COMMAND, "groups"], stdout=terminal_end, stderr=subprocess.PIPE, env=environment, check=True
    )
    os.close(terminal_end)
    shown = os.read(main_end, 1 << 16).decode()
    os.close(main_end)
    assert without_progress(done.stderr.decode()) == ""
    assert "─" in shown
    assert "[red]x" in shown


@pytest.mark.usefixtures("lake")
def test_history_lists_commits_newest_first_with_resets(run: Run) -> None:
    code, out, err = run("history", "--group", "g", "--topic", "t", "--partition", "0", "--format", "json")
    lacks = "1 batch or record without a readable key that may be about it"
    note = f"The history lacks {lacks}: they cannot be decoded (table quarantine).\n"
    assert (code, err) == (0, note)
    rows = [json.loads(line) for line in out.splitlines()]
    events = [(row["log_offset"], row["event"], row["previous_offset"], row["difference"]) for row in rows]
    assert events == [
        (5_000, "commit", None, None),
        (4_000, "tombstone", 3, None),
        (2_000, "reset_back", 5, -2),
        (1_000, "commit", None, None),
    ]
    assert run("history", "--group", "g", "--topic", "t", "--partition", "0", "--limit", "2")[1].count("\n") == 3


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("as_of", "committed"),
    [("1000", 5), ("1970-01-01T00:00:02.5", 5), ("1970-01-01T01:00:03+01:00", 3), ("4000", None), ("2030-01-01", 4)],
)
def test_offsets_as_of_a_time(run: Run, as_of: str, committed: int | None) -> None:
    code, out, _ = run("offsets", "--as-of", as_of, "--format", "json")
    assert code == 0
    assert [json.loads(line)["committed_offset"] for line in out.splitlines()] == (
        [] if committed is None else [committed]
    )


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("1795615500000", "--as-of '1795615500000' is 2026-11-25T14:05:00.000Z (UTC)."),
        ("2026-11-25T14:05+02:00", "--as-of '2026-11-25T14:05+02:00' is 2026-11-25T12:05:00.000Z (UTC)."),
        (
            "2999-01-01",
            "2999-01-01T00:00:00.000Z is in the future: the newest record is of 1970-01-01T00:00:05.000Z, and",
        ),
        ("2026-11-25T14:05", ""),
    ],
)
@pytest.mark.parametrize("question", ["offsets", "groups"])
def test_answer_of_a_time_names_the_instant(run: Run, question: str, text: str, note: str) -> None:
    code, _, err = run(question, "--as-of", text)
    assert (code, bool(err)) == (0, bool(note))
    assert err.startswith(note)


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    "command",
    ["offsets --as-of {}", "groups --as-of {}", "share --as-of {}", "diff --from {} --to now",
     "history --group g --topic t --partition 0 --since {}", "audit changes --since {}",
     "audit-events --since {}", "report --since {}",
     "transactions --now {}", "lag --now {}", "expire --now {}", "expire --what-if --now {}",
     "restore g --as-of {} --log log", "reset g --all-topics --to-datetime {} --log log"],
)  # fmt: skip
@pytest.mark.parametrize("text", ["1764252000", "202611271405", "2026"])
def test_every_option_for_a_time_refuses_what_cannot_be_meant(run: Run, command: str, text: str) -> None:
    code, out, err = run(*command.format(text).split())
    assert (code, out) == (2, "")
    assert f"error: Invalid timestamp {text}: as milliseconds since the epoch, it is 19" in err


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["offsets", "--as-of", "999"], 2, "history begins at 1970-01-01T00:00:01.000Z"),
        (["offsets", "--as-of", "yesterday"], 2, "Invalid timestamp 'yesterday'"),
        (
            ["groups", "--lake", "nowhere"],
            6,
            "no lake in nowhere: `offsetlake run --lake nowhere --log FOLDER` creates one",
        ),
        (["groups", "--state", "Happy"], 2, "states are Empty"),
        (["groups", "--type", "odd"], 2, "'odd' is not one of"),
        (["groups", "--format", "xml"], 2, "'xml' is not one of"),
        (["history", "--group", "g", "--topic", "t"], 2, "Missing option '--partition'"),
        (["offsets", "--limit", "-1"], 2, "'--limit'"),
        (["audit-events", "--since", "yesterday"], 2, "Invalid timestamp 'yesterday'"),
        (["sql", "SELECT nope FROM offsets"], 2, "No field named nope"),
        (["groups", "--config", "nowhere.toml"], 2, "Cannot read nowhere.toml"),
        (["bogus"], 2, "No such command 'bogus'"),
        (["run"], 2, "Specify one log"),
        (["run", "--log", "nowhere", "--lake", "new"], 3, "There is no folder nowhere"),
        (["ingest", "--log", "lake", "--lake", "new"], 3, "does not contain a log"),
        (["run", "--bootstrap", "127.0.0.1:1", "--lake", "new"], 3, "connection refused"),
        (["compact", "--lake", "new"], 6, "no lake in new"),
        (["maintain", "--lake", "new"], 6, "no lake in new"),
        (["maintain", "--lake", "new", "--dry-run"], 6, "no lake in new"),
        (["maintain", "--log", "nowhere"], 3, "There is no folder nowhere"),
        (["maintain", "--log", "nowhere", "--dry-run"], 3, "There is no folder nowhere"),
        (["maintain", "--bootstrap", "127.0.0.1:1"], 2, "No such option"),
    ],
)
def test_error_is_one_line_and_an_exit_code(
    run: Run, tmp_path: Path, arguments: list[str], code: int, says: str
) -> None:
    exit_code, out, err = run(*arguments)
    assert exit_code == code
    assert out == ""
    assert err.splitlines()[-1].startswith("error: ")
    assert says in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not (tmp_path / "new").exists(), "a failed command creates no lake"


def test_internal_error_has_a_traceback_and_code_70(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(questions, "groups", broken)
    code, _, err = run("groups", "--lake", str(lake))
    assert code == 70
    assert "Traceback" in err
    assert "ZeroDivisionError" in err


def test_settings_come_from_the_environment_and_a_file(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (lake.parent / "settings.toml").write_text('format = "csv"')
    monkeypatch.setenv("OFFSETLAKE_LAKE", str(lake))
    assert run("groups", "--config", "settings.toml")[1].startswith("group_id,group_type")


def test_help_lists_every_command_with_examples(run: Run) -> None:
    assert run("--version")[1].startswith("offsetlake ")
    code, out, _ = run()
    assert code == 0
    for command in ("run", "ingest", "compact", "maintain", "offsets", "groups", "history", "audit-events", "sql"):
        assert command in out
        assert f"offsetlake {command}" in run(command, "--help")[1], "an example"


@pytest.mark.parametrize("words", [(), ("lag",)])
def test_help_shows_a_type_of_options_with_values_only(run: Run, words: tuple[str, ...]) -> None:
    shown = dict(re.findall(r"│ +(--[a-z-]+) +(\S+)", run(*words, "--help")[1]))
    assert shown["--fleet"] == "FILE"
    assert shown["--help"] == "Show"
    assert shown["--partitions" if words else "--version"] in {"Show", "Print"}


@pytest.mark.long
@pytest.mark.usefixtures("lake")
def test_closed_pipe_is_no_error() -> None:
    tables = ", ".join(f"offset_commits AS {name}" for name in "abcdefghi")
    many = f"SELECT a.log_offset AS value FROM {tables}"  # 4^9 rows
    shown = subprocess.Popen([*COMMAND, "sql", many, "--format", "csv"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert shown.stdout is not None
    assert shown.stderr is not None
    assert shown.stdout.readline() == b"value\n"
    shown.stdout.close()
    assert without_progress(shown.stderr.read().decode()) == "", "no error"
    shown.stderr.close()
    assert shown.wait() == 128 + signal.SIGPIPE


@pytest.mark.long
@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("arguments", "closed"),
    [
        ("groups", ">&-"),
        ("groups --format json", ">&- 2>&-"),
        ("views", "<&- >&- 2>&-"),
        ("sql 'SELECT 1 AS x' --format csv", ">&-"),
    ],
)
def test_command_succeeds_without_standard_output(arguments: str, closed: str) -> None:
    command = f"exec {shlex.join(COMMAND)} {arguments} {closed}"
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, without_progress(done.stderr.decode())) == (0, "")


@pytest.mark.usefixtures("lake")
def test_ctrl_c_during_imports_exits_with_130() -> None:
    command = [sys.executable, "-X", "importtime", *COMMAND[1:], "groups"]
    starting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert starting.stderr is not None
    while "offsetlake.util.processes" not in (line := starting.stderr.readline()):
        assert line, "the process ended before the interrupt"
    while "import time" not in (line := starting.stderr.readline()) or "offsetlake" in line:
        assert line, "the process ended before the interrupt"
    starting.send_signal(signal.SIGINT)
    _, err = starting.communicate(timeout=SECONDS)
    assert starting.returncode == 130
    assert [line for line in err.splitlines() if not line.startswith("import time:")] == []


@pytest.mark.usefixtures("lake")
def test_full_disk_is_an_error() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, "groups"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert without_progress(done.stderr).startswith("error: Cannot write the answer: No space left on device.")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("20991128", "in the future"),
        ("4099593600000", "in the future"),
        ("12345", "it is 1970-01-01"),
        ("-2", "2h ago"),
    ],
)
def test_reset_to_a_number_without_records_is_refused(run: Run, text: str, reason: str) -> None:
    code, out, err = run("reset", "g", "--all-topics", "--to-datetime", text, "--log", "log")
    assert (code, out) == (2, "")
    assert reason in err


def test_timestamps_are_read_and_written() -> None:
    assert times.to_ms("-5") == -5
    assert times.to_ms("1969-12-31T23:59:59.9999") == -1
    assert times.to_ms("2026-01-31") == 1_769_817_600_000
    assert times.to_iso(-1) == "1969-12-31T23:59:59.999Z"
    assert times.to_iso(2**63 - 1) == str(2**63 - 1)


DURATIONS = {
    "500ms": 500, "60s": 60_000, "90m": 5_400_000, "36h": 129_600_000, "7d": 604_800_000, "1w": 604_800_000,
    "PT1H": 3_600_000, "PT1H30M": 5_400_000, "P1D": 86_400_000, "P1DT2H3M4.056S": 93_784_056, "pt0.5s": 500, "PT0S": 0,
}  # fmt: skip


@pytest.mark.parametrize(("text", "ms"), DURATIONS.items())
def test_duration_is_read_in_ms(text: str, ms: int) -> None:
    assert times.duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "7", "d", "1y", "-1h", "1.5h", "P", "PT", "P1DT", "P1H", "PT1D", "PT-1H", "P1M"])
def test_invalid_duration_is_an_error(text: str) -> None:
    with pytest.raises(errors.BadRequest, match="expected a whole number and ms, s, m, h, d, w"):
        times.duration_ms(text)


@pytest.fixture
def real(tmp_path: Path, broker_lake: Lake) -> str:
    """A compacted lake of the bundled log."""
    return str(shutil.copytree(broker_lake.location.path, tmp_path / "real"))


def test_expire_plans_and_tombstones_shows_the_plan(run: Run, real: str) -> None:
    code, out, _ = run("expire", "--lake", real, "--now", "2026-12-01")
    assert code == 0
    assert (
        "Evaluated 196 offsets: 185 expire, and 31 groups are deleted; planned 216 tombstones, which `offsetlake emit` "
        "writes" in out
    )
    assert f"To see what expires and why: offsetlake tombstones --lake {real}" in out
    rows = [json.loads(line) for line in run("tombstones", "--lake", real, "--format", "json")[1].splitlines()]
    assert len(rows) == 216
    assert rows[0]["outcome"] == "planned"
    assert list(rows[0]) == [column["name"] for column in definition("tombstones").columns]
    assert "planned 216" not in run("expire", "--lake", real, "--now", "2026-12-02")[1]
    assert run("offsets", "--lake", real, "--format", "csv")[1].count("\n") == 197, "planning deletes nothing"


def test_lake_of_an_older_version_answers_except_for_missing_tables(run: Run, real: str) -> None:
    (Path(real) / "offsetlake.json").write_text('{"version": 1}')
    before = run(*shlex.split(HISTORY.format(lake=real)))
    for table in ("tombstones", "audit_events"):
        shutil.rmtree(Path(real) / table)
    assert run(*shlex.split(HISTORY.format(lake=real))) == before
    assert run("sql", "--lake", real, "SELECT count(*) AS n FROM offsets", "--format", "json")[:2] == (
        0,
        '{"n": 196}\n',
    )
    for question in ("tombstones", "audit-events"):
        code, _, err = run(question, "--lake", real)
        assert (code, "an older offsetlake made the lake: the next job that writes adds it" in err) == (6, True)
    assert run("expire", "--lake", real)[0] == 0
    assert [run(question, "--lake", real)[0] for question in ("tombstones", "audit-events")] == [0, 0]


def test_corrupt_plan_file_is_an_error(run: Run, real: str) -> None:
    (Path(real) / "plan-expire.json").write_text("garbage")
    code, _, err = run("expire", "--lake", real)
    assert code == 6
    assert f"{real}/plan-expire.json is not a plan of expire" in err


def test_what_if_compares_and_writes_nothing(run: Run, real: str) -> None:
    before = sorted(Path(real).rglob("*"))
    code, out, _ = run(
        "expire", "--what-if", "--retention", "1h", "--lake", real, "--now", "2026-11-22", "--group", "billing",
        "--format", "json",
    )  # fmt: skip
    assert code == 0
    assert json.loads(out) == {
        "group_id": "billing", "group_type": "classic", "state": "Empty", "offsets": 6, "now": 0, "in_24_hours": 0,
        "in_7_days": 6, "in_30_days": 6, "kept": 0, "next_expiry_timestamp": 1795844335158, "group_goes": False,
        "now_with_1h": 6,
    }  # fmt: skip
    shown = run("expire", "--what-if", "--lake", real, "--retention", "PT5M")[1].splitlines()[0].split()
    assert shown[-1] == "now_with_5m"
    for style in ("table", "csv"):
        assert "other_now" not in run("expire", "--what-if", "--lake", real, "--format", style)[1]
    assert sorted(Path(real).rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--retention", "7 days"], "error: Invalid duration '7 days': expected a whole number and ms, s, m, h, d"),
        (["--retention", "999999999999d"], "error: Invalid duration 999999999999d: expected at most 2932896d"),
        (
            ["--retention", "6m"],
            "error: Invalid duration 6m: m can be minutes or months. Write PT6M for 6 minutes, or 180d",
        ),
        (["--what-if", "--retention", "0s"], "error: Invalid duration 0s: nothing would be kept"),
        (["--now", "tomorrow"], "error: Invalid timestamp 'tomorrow'"),
        (
            ["--now", "99999999999999999999"],
            "error: Invalid timestamp 99999999999999999999: expected milliseconds in the years 1 to 9999",
        ),
        (["--group", "a*"], "error: --group requires --what-if"),
        (["--what-if", "--compacted-by", "2"], "error: --compacted-by cannot be combined with --what-if"),
    ],
)
def test_invalid_expire_arguments_are_errors(run: Run, real: str, arguments: list[str], says: str) -> None:
    code, out, err = run("expire", "--lake", real, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(says)


@pytest.fixture
def cut_log(tmp_path: Path) -> Path:
    """The bundled log without `meta.properties`, in segments of eight batches."""
    log = tmp_path / "log"
    shutil.copytree(FIXTURES / "broker-log", log, ignore=shutil.ignore_patterns("meta.properties"))
    for segment in [*log.glob("*/*.log")]:
        data, position, starts = segment.read_bytes(), 0, []
        while position < len(data):
            base, length = struct.unpack_from(">qi", data, position)
            starts.append((base, position))
            position += 12 + length
        for (base, start), (_, end) in pairwise([*starts[::8], (0, len(data))]):
            (segment.parent / f"{base:020d}.log").write_bytes(data[start:end])
    return log


@pytest.mark.long
def test_maintain_cuts_the_named_log_after_a_dry_run(
    run: Run, real: str, cut_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.stat().st_mtime_ns for folder in (Path(real), cut_log) for path in folder.rglob("*")}
    code, preview, _ = run("maintain", "--dry-run", "--lake", real, "--log", str(cut_log))
    after = {path: path.stat().st_mtime_ns for folder in (Path(real), cut_log) for path in folder.rglob("*")}
    assert (code, after) == (0, before), "a dry run changes nothing"
    lines = [line.split(maxsplit=5) for line in preview.splitlines()]
    assert preview.startswith(f"23 segments (72,913 bytes) of the log {cut_log} would be deleted.\nlog_partition  ")
    assert ["__consumer_offsets-9", "111", "2", "5814", "0"] in lines
    held = "an open transaction of producer 1 at offset 15"
    assert ["__consumer_offsets-39", "15", "0", "0", "3", held] in lines
    assert preview.endswith("Nothing was changed: run the command without --dry-run to do it.\n")

    monkeypatch.setenv("OFFSETLAKE_LOG", str(cut_log))
    assert "The log was not changed: select a log to cut with --log" in run("maintain", "--lake", real)[1]
    code, out, err = run("maintain", "--lake", real, "--log", str(cut_log))
    assert code == 0
    assert "deleting 23 segments of 19 log partitions" in err
    assert out.startswith(f"Deleted 23 segments (72,913 bytes) of the log {cut_log}\n")
    assert f"NOTE  __consumer_offsets-39: 3 segments kept in the log: {held}" in out
    assert f"Deleted no segment of the log {cut_log}" in run("maintain", "--lake", real, "--log", str(cut_log))[1]
    assert "No segment of the log" in run("maintain", "--dry-run", "--lake", real, "--log", str(cut_log))[1]


def test_maintain_refuses_other_logs_and_unfinished_runs(run: Run, real: str, cut_log: Path) -> None:
    shutil.copy(FIXTURES / "broker-log" / "meta.properties", cut_log)
    code, _, err = run("maintain", "--lake", real, "--log", str(cut_log))
    assert (code, "belongs to a broker" in err) == (7, True)
    code, _, err = run("maintain", "--lake", real, "--log", str(FIXTURES / "real-log"))
    assert (code, "a lake contains one log" in err) == (4, True)
    Lake.open(Path(real)).files.write("plan-compact.json", {"run_id": 9})
    code, _, err = run("maintain", "--lake", real)
    assert (code, "run `offsetlake compact` again first" in err) == (5, True)


@pytest.mark.long
@pytest.mark.jvm
def test_run_and_the_commands_that_it_suggests(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = FIXTURES / "real-log"
    first = subprocess.run([*COMMAND, "run", "--log", log], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "WARNING" not in first.stderr, "warnings of the JVM are suppressed"
    steps = [line.split("  ")[-1].partition(":")[0] for line in first.stderr.splitlines()]
    steps = [*dict.fromkeys(line.split(" ")[0] for line in steps if not line.startswith("running"))]
    steps.remove("NOT")  # READ: the fixture has 18 of the 50 partitions
    assert steps == ["checking", "reading", "starting", "compacting"], "progress of slow steps is between them"
    assert "Read 160 records of 18 log partitions" in first.stdout
    assert "33 commits" in first.stdout
    commands = [line.strip() for line in first.stdout.splitlines() if line.startswith("  offsetlake ")]
    assert len(commands) == 3
    for command in commands:
        assert run(*shlex.split(command)[1:])[1].count("\n") > 1, f"{command} has an answer"
    monkeypatch.setenv("JAVA_HOME", "/nowhere")  # Spark could not start
    second = run("run", "--log", str(log))[1]
    assert "Nothing new" in second
    assert "Nothing to compact" in second
    records = read_log(log)
    for timestamp in sorted({record.log_timestamp for record in records})[::20]:
        answer = run("offsets", "--as-of", str(timestamp), "--format", "json")[1]
        offsets = {
            (r["group_id"], r["topic"], r["partition"]): r["committed_offset"]
            for r in map(json.loads, answer.splitlines())
        }
        assert offsets == {key: value.committed_offset for key, value in replay(records, timestamp).committed.items()}


@pytest.mark.long
@pytest.mark.jvm
@pytest.mark.parametrize(("step", "pause"), [("starting Spark", 0.5), ("compacting", 0)])
def test_interrupted_run_is_finished_by_the_next_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, pause: float
) -> None:
    arguments = ["run", "--log", str(FIXTURES / "real-log")]
    running = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stderr is not None
    while step not in (line := running.stderr.readline()):
        assert line, "the process ended before the interrupt"
    time.sleep(pause)
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=SECONDS)
    assert (running.returncode, out, without_progress(err)) == (130, "", "")
    assert _group_ends(running.pid), "the JVM ends too"
    monkeypatch.setattr(runner, "LazySession", NoSpark)
    assert "finished after an interruption" in run(*arguments)[1]


def _group_ends(group: int) -> bool:
    """Return whether all processes of a process group end."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)  # the interval between polls
    return False
