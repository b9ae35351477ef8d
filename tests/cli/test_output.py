"""Tables, CSV and JSON of any text, width and encoding; omitted columns of tables; limits."""

import csv
import io
import json
import os
import pty
import random
import re
import shutil
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.cli import main, output
from offsetlake.lake.lake import Lake
from offsetlake.pipeline import runner
from offsetlake.util.escaping import visible
from support.command_line import Run
from support.e2e.in_process import InProcess, NoSpark
from support.e2e.lakes import cycle as cycle_of
from support.lakes import new_lake
from support.oracle.random_logs import RandomLog
from support.oracle.recipes import Sizes, World, choose_batch

HOSTILE = [
    "plain", "", "ключ", "é", "漢字", "😀", "\x1b[31mred", "bell\x07", "\x9b31m", "a\u202eb", "\u2066c", "\\x1b[31mred",
    "\\u043a", "line\nbreak", "quote\"'", "a,b", "\\", "\\\\", "\x7f", "\u2028", "\U000e0041", "\u043a",
]  # fmt: skip
FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"]
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters except the line feed, and bidirectional overrides."""


def written(answer: pa.Table, style: str, encoding: str = "utf-8") -> str:
    """Return what `write` writes to a file in a strict encoding."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="")
    output.write(answer, style, file=file)
    return raw.getvalue().decode(encoding)


def on_terminal(answer: pa.Table, style: str) -> str:
    """Return what `write` writes to a terminal."""
    main_end, terminal_end = pty.openpty()
    with os.fdopen(terminal_end, "w", encoding="utf-8") as terminal:
        output.write(answer, style, file=terminal)
    received = b""
    with suppress(OSError):  # EIO: everything is read, and the other end is closed
        while more := os.read(main_end, 1 << 16):
            received += more
    os.close(main_end)
    return received.decode().replace("\r\n", "\n")


def width_of(line: str) -> int:
    """Return the number of terminal cells of a line."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii", "utf-16"])
@pytest.mark.parametrize("style", ["table", "json", "csv"])
def test_names_are_written_unambiguously_in_every_encoding(style: str, encoding: str) -> None:
    answer = pa.table({"name": HOSTILE + FORMULAS, "names": [[name] for name in HOSTILE + FORMULAS]})
    shown = written(answer, style, encoding)
    if style == "json":
        rows = [json.loads(line) for line in shown.splitlines()]
        assert rows == answer.to_pylist()
    elif style == "csv" and encoding.startswith("utf"):
        rows = list(csv.reader(io.StringIO(shown, newline="")))[1:]
        assert [row[0] for row in rows] == HOSTILE + FORMULAS
    else:
        rows = list(csv.reader(io.StringIO(shown, newline="")))[1:] if style == "csv" else shown.splitlines()[1:]
        assert len({str(row) for row in rows}) == len(HOSTILE + FORMULAS), "different names look different"
    if style != "csv":
        assert RAW.findall(shown) == []


def test_csv_on_a_terminal_escapes_controls_and_formulas() -> None:
    answer = pa.table({"name": HOSTILE + FORMULAS, "number": [-5] * len(HOSTILE + FORMULAS)})
    shown = on_terminal(answer, "csv")
    assert RAW.findall(shown) == []
    rows = list(csv.DictReader(io.StringIO(shown)))
    assert len({row["name"] for row in rows}) == len(rows) == answer.num_rows
    assert not [row["name"] for row in rows if row["name"].startswith(("=", "+", "-", "@"))]
    assert {row["number"] for row in rows} == {"-5"}
    assert "'=1+1,-5\n" in shown


def test_table_on_a_terminal_escapes_controls() -> None:
    shown = on_terminal(pa.table({"name": HOSTILE}), "table")
    assert RAW.findall(shown) == []
    assert "\n─" in shown


names = st.text(alphabet=st.sampled_from("ab_-. \\\x1b漢é…"), max_size=40)
columns = st.lists(
    st.tuples(
        st.text(alphabet="abcdef_漢", min_size=1, max_size=30),
        st.one_of(
            st.lists(st.none() | names, min_size=3, max_size=3),
            st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3),
            st.lists(st.none() | st.lists(names, max_size=3), min_size=3, max_size=3),
        ),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda column: column[0],
)


@given(columns=columns, width=st.integers(1, 200), ranks=st.lists(st.integers(1, 4), min_size=12, max_size=12))
def test_table_is_not_wider_than_the_terminal(
    columns: Sequence[tuple[str, list[object]]], width: int, ranks: list[int]
) -> None:
    answer = pa.table(dict(columns))
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        output.write(answer, "table", dict(zip(answer.column_names, ranks, strict=False)), file=shown)
    assert max(map(width_of, shown.getvalue().splitlines())) <= width


@pytest.mark.parametrize("width", [80, 100, 160])
def test_wide_table_names_dropped_and_shortened_columns(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    answer = pa.table(
        {
            "group_id": [f"team-a.orders.enrichment-service.production-{number}" for number in (1, 2)],
            "empty": pa.nulls(2, pa.string()),
            "committed_offset": [123_456_789_012, 5],
            "commit_timestamp": [1_700_000_000_123, 1_700_000_000_123],
            "log_offset": [10**15, 7],
            "reason": ["a sentence of many words which goes on in the next line of its own cell"] * 2,
        }
    )  # fmt: skip
    importance = {
        "group_id": 1, "empty": 2, "committed_offset": 1, "commit_timestamp": 3, "log_offset": 4, "reason": 2,
    }  # fmt: skip
    output.write(answer, "table", importance)
    out, err = capsys.readouterr()
    assert max(map(width_of, out.splitlines())) <= width
    assert "…" not in err
    assert "123456789012" in out, "numbers are never cut"
    note = re.fullmatch(r"Columns at a width of \d+: (.*)\. Use --format json or a wider terminal to see .*\n", err)
    omitted = dict(part.split(": ") for part in note[1].split("; ")) if note else {}
    assert (
        omitted
        == {
            80: {"not shown": "commit_timestamp, log_offset", "empty and not shown": "empty", "shortened": "group_id"},
            100: {"not shown": "log_offset", "empty and not shown": "empty", "shortened": "group_id"},
            160: {"empty and not shown": "empty"},
        }[width]
    )
    if width == 80:
        cells = {line.split("  ")[0] for line in out.splitlines() if line.startswith("team-a")}
        assert len(cells) == 2, "the end of a name, in which names differ, is shown"


def test_table_without_rows_has_a_header(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    output.write(pa.table({name * 8: pa.nulls(0, pa.string()) for name in "abcde"}), "table")
    assert capsys.readouterr() == ("aaaaaaaa  bbbbbbbb  cccccccc\n", "")


def test_table_in_a_pipe_has_all_columns(capsys: pytest.CaptureFixture[str]) -> None:
    answer = pa.table({f"column_{number}": ["x" * 100] for number in range(30)})
    output.write(answer, "table")
    out, err = capsys.readouterr()
    assert (out.count("x" * 100), err) == (30, "")


def test_long_name_is_shortened_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["n" * 3000, *(f"group-{number}" for number in range(999))]
    answer = pa.table({"group_id": names, "offset": range(1000)})
    output.write(answer, "table")
    out, err = capsys.readouterr()
    assert len(out) < 1000 * 300
    assert re.search(r"^n+…n+ +0$", out, re.MULTILINE)
    assert err == "Columns shortened: group_id. Use --format json to see everything.\n"
    for style in ("json", "csv"):
        assert "n" * 3000 in written(answer, style)


QUESTIONS = [
    "offsets", "offsets --as-of 2026-11-21T05:38:54", "audit-events", "sql 'SELECT * FROM offset_commits'",
    "audit changes",
    "diff --from 2026-11-21T05:38:48 --to 2026-11-21T05:38:54", "groups", "tombstones", "alterations",
    "transactions --now 2026-12-01", "history --group bulk-1 --topic orders --partition 0",
]  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_table_has_fifty_rows_unless_limited_and_json_and_csv_have_all(
    run: Run, broker_lake: Lake, question: str
) -> None:
    words = [
        *(word.strip("'") for word in re.findall(r"'[^']+'|\S+", question)),
        "--lake",
        str(broker_lake.location.path),
    ]
    json_lines = run(*words, "--format", "json")[1].splitlines()
    code, out, err = run(*words)
    assert code == 0
    assert out.count("\n") == 1 + min(50, len(json_lines))
    assert err == (
        f"… and {len(json_lines) - 50:,} more rows: use --limit 0 to write all.\n" if len(json_lines) > 50 else ""
    )
    assert run(*words, "--limit", "0")[1].count("\n") == 1 + len(json_lines)
    assert run(*words, "--limit", "2")[1].count("\n") == 1 + min(2, len(json_lines))
    assert run(*words, "--limit", "2", "--format", "json")[1].splitlines() == json_lines[:2]
    assert run(*words, "--limit", "0", "--format", "csv")[1].count("\n") == 1 + len(json_lines)


GROUP = "ключ\x1b[31m\x9b1m\u202e😀"
KEY_OPTIONS = ["--group", GROUP, "--topic", "topic-0", "--partition", "0"]


@pytest.fixture(scope="module")
def hostile_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a lake and its log: the name of a group contains control characters and non-ASCII text."""
    folder = tmp_path_factory.mktemp("hostile")
    world = World(groups=(GROUP, "=2+2"), topics=("topic-0",), partitions=1, log_partitions=2)
    rng = random.Random(1)
    plans = tuple(choose_batch(rng.randrange, world, Sizes(6, 100)) for _ in range(40))
    RandomLog(world, plans).write(folder / "log")
    cycle_of(InProcess(), new_lake(folder / "lake"), folder / "log")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["groups"], ["groups", "--format", "json"], ["offsets"], ["offsets", "--format", "json"], ["audit-events"],
        ["tombstones"], ["alterations"], ["transactions"], ["runs"], ["views"], ["--help"], ["audit", "--help"],
        ["audit"], ["audit", "changes"], ["audit", "log_growth"], ["history", *KEY_OPTIONS], ["expire", "--what-if"],
        ["sql", f"SELECT '{GROUP}' AS \"{GROUP}\" FROM groups"], ["run", "--log", "log"], ["maintain", "--dry-run"],
        ["maintain", "--dry-run", "--log", f"{GROUP}-log"], ["ingest", "--log", f"{GROUP}-log"],
        ["cleanup", GROUP, "--log", "log"], ["reset", GROUP, "--all-topics", "--to-offset", "1", "--log", "log"],
        ["snapshot", f"{GROUP}.arrow", "--log", "log"], ["report", "--to", f"{GROUP}.html"],
        ["serve", "--check", "--log", "log"], ["check", "--suite", "after_expire"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_commands_accept_any_group_name_and_escape_it(
    hostile_lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], encoding: str
) -> None:
    shutil.copytree(hostile_lake, tmp_path, dirs_exist_ok=True)
    (tmp_path / f"{GROUP}-log").symlink_to("log")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "LazySession", NoSpark)
    raw = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(each, encoding=encoding, errors="strict", write_through=True) for each in raw)
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    code = main.run(arguments)
    written = "".join(each.getvalue().decode("utf-8" if arguments == ["views"] else encoding) for each in raw)
    assert "Traceback" not in written
    assert code in (0, 8), written  # 8: a group with members is refused
    assert RAW.findall(written) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["groups", "--state", "{}"],
        ["{}"],
        ["groups", "--format", "{}"],
        ["groups", "--config", "{}"],
        ["sql", "SELECT '{}' FROM nowhere"],
        ["sql", "SELECT {}"],
        ["offsets", "--as-of", "{}"],
        ["audit", "{}"],
        ["history", "--group", "{}", "--topic", "t", "--partition", "0"],
        ["run", "--log", "{}"],
        ["expire", "--retention", "{}"],
        ["serve", "--log", "log", "--topics", "{}"],
        ["reset", "g", "--topic", "t:{}", "--to-latest"],
        ["check", "--suite", "{}"],
        ["snapshot", "{}", "--log", "log"],
        ["report", "--group", "{}"],
        ["credentials", "remove", "{}"],
    ],
)
def test_errors_escape_controls(run: Run, broker_lake: Lake, arguments: list[str]) -> None:
    hostile = "\x1b]0;owned\x07\x9b31m\u202e"
    os.environ.pop("OFFSETLAKE_LAKE", None)
    lake = [] if arguments[0] in ("{}", "credentials") else ["--lake", str(broker_lake.location.path)]
    code, out, err = run(*(each.replace("{}", hostile) for each in arguments), *lake)
    assert code != 0
    assert "error: " in err
    assert RAW.findall(out + err) == []
    assert "Traceback" not in err


def test_visible_escapes_controls() -> None:
    assert visible("a\x1b[2Jb\n\u202e ключ 😀") == "a\\x1b[2Jb\\n\\u202e ключ 😀"


@pytest.mark.long
def test_offsets_table_queries_only_the_rows_it_shows(
    run: Run, broker_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    query = Lake.query

    def counted(lake: Lake, sql: str, *tables: str, **versions: int) -> pa.Table:
        rows = query(lake, sql, *tables, **versions)
        read.append(rows.num_rows)
        return rows

    monkeypatch.setattr(Lake, "query", counted)
    code, out, err = run("offsets", "--lake", str(broker_lake.location.path))
    assert (code, out.count("\n"), err) == (0, 51, "… and 146 more rows: use --limit 0 to write all.\n")
    assert max(read) == 50
