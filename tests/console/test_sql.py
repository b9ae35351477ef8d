"""SQL in the console: results as table, chart and CSV, errors with their position, limits, and that it only reads."""

import asyncio
import csv
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.web.console.sql import queries
from offsetlake.web.console.sql.child import MAX_GROWTH_BYTES
from offsetlake.web.console.sql.queries import MAX_ROWS, Queries
from support.console.served import Page, get, served
from support.console.visitors import leave_during
from support.queries.lakes import commit, small_lake
from support.report.report_rows import TAGS

pytestmark = pytest.mark.slow

COUNTED = "SELECT group_id, count(*) AS commits FROM offset_commits GROUP BY group_id ORDER BY commits DESC"
ENDLESS = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("console") / "lake"
    busy = [commit(n, n, group_id="busy", log_timestamp=1_000 + n) for n in range(MAX_ROWS + 10)]
    small_lake(path, offset_commits=[*busy, commit(5_000, 1, group_id=TAGS, metadata=TAGS, log_timestamp=1)])
    return path


@pytest.fixture(scope="module")
def port(lake: Path) -> Iterator[int]:
    with served(lake) as listening:
        yield listening


def page(port: int, statement: str, status: int = 200, form: str = "table") -> Page:
    answer = get(port, f"/sql?{urlencode({'statement': statement, 'form': form})}")
    assert answer.status == status, answer.text
    assert len(answer.text.encode()) < 1_000_000
    return Page(answer.text)


def test_a_result_is_a_table_a_chart_and_a_file_and_the_command_has_it_too(port: int, run: object) -> None:
    shown = page(port, COUNTED)
    assert shown.rows == [["busy", str(MAX_ROWS + 10)], [TAGS, "1"]]
    bars = page(port, COUNTED, form="chart")
    assert [(row[0], row[2]) for row in bars.rows] == [("busy", f"{MAX_ROWS + 10:,}"), (TAGS, "1")]
    widths = [float(attributes["width"] or 0) for tag, attributes in bars.tags if tag == "rect"]
    assert widths == [1000.0, 1.0]
    file = get(port, f"/sql.csv?{urlencode({'statement': COUNTED})}")
    assert file.headers["content-disposition"] == 'attachment; filename="result.csv"'
    rows = [["group_id", "commits"], *shown.rows]
    assert list(csv.reader(file.text.splitlines())) == rows
    code, out, err = run(*shlex.split(shown.command)[1:], "--format", "csv")  # type: ignore[operator]
    assert code == 0, err
    assert list(csv.reader(out.splitlines())) == rows


def test_the_first_rows_of_a_large_result_are_shown(port: int) -> None:
    shown = page(port, "SELECT * FROM offset_commits")
    assert 0 < len(shown.rows) <= MAX_ROWS
    assert f"{MAX_ROWS + 11:,} rows, of which the first {len(shown.rows):,} are shown" in shown.text


def test_tables_and_views_are_listed_with_their_comments_and_columns(port: int) -> None:
    shown = page(port, "")
    assert "commit_steps" in shown.text
    assert "when the broker appended the record, in ms since the epoch" in shown.text
    proposed = {attributes.get("value") for tag, attributes in shown.tags if tag == "option"}
    assert {"offset_commits", "committed_offset", "stalled_partitions", "count("} <= proposed


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM offsets", "SELECT 1; DELETE FROM offsets", "INSERT INTO offsets VALUES (1)", "COPY offsets TO '/x'",
     "SET datafusion.runtime.memory_limit = '9G'", "SELECT 1) x; DROP TABLE offsets; --"],
)  # fmt: skip
def test_no_statement_changes_anything(lake: Path, port: int, statement: str) -> None:
    versions = Lake.open(lake).versions()
    assert "SELECT" in page(port, statement, 400).text
    assert Lake.open(lake).versions() == versions


def test_the_position_of_an_error_is_marked(port: int) -> None:
    shown = page(port, "SELECT group_id\nFROM offsets WHERE topic = = 'a'", 400)
    assert "Line: 2, Column: 28" in shown.text
    assert f"FROM offsets WHERE topic = = 'a'\n{' ' * 27}^" in shown.text
    assert "Tables are offset_commits" in page(port, "SELECT * FROM nothing", 400).text


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT FROM", "Syntax error: Expected: identifier, found: the end of the statement"),
        ("SELECT 'a", "Syntax error: Unterminated string literal at Line: 1, Column: 8"),
        ('SELECT 1 AS "a" "b"', 'Syntax error: Expected: end of statement, found: "b" at Line: 1, Column: 17'),
        ("SELECT 1/0", "Divide by zero error"),
        ("SELECT sum(group_id) FROM offset_commits", "type casts. Candidate functions: sum(Decimal), sum("),
    ],
)
def test_an_error_has_the_message_of_the_engine(
    port: int, run: object, lake: Path, statement: str, message: str
) -> None:
    shown = page(port, statement, 400).text
    assert message in shown
    assert "bug in DataFusion" not in shown
    code, _, errors = run("sql", statement, "--lake", str(lake))  # type: ignore[operator]
    assert (code, message in errors) == (2, True)


def test_an_example_is_offered_and_not_in_the_way(port: int) -> None:
    shown = get(port, "/sql").text
    assert "></textarea>" in shown
    links = {attributes.get("href") or "" for tag, attributes in Page(shown).tags if tag == "a"}
    (example,) = [link for link in links if link.startswith("/sql?")]
    assert "The result has no rows." in Page(get(port, example).text).text


def test_a_query_that_takes_too_long_is_stopped(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no() -> bool:
        return False

    async def yes() -> bool:
        return True

    monkeypatch.setattr(queries, "MAX_SECONDS", 3)
    with pytest.raises(BadRequest, match="was stopped after 3 seconds"):
        asyncio.run(Queries(lake).run(ENDLESS, 1, no))
    with pytest.raises(BadRequest, match="was cancelled"):
        asyncio.run(Queries(lake).run(ENDLESS, 1, yes))


def test_a_query_ends_when_the_browser_leaves(port: int) -> None:
    leave_during(port, f"/sql?{urlencode({'statement': ENDLESS})}")
    assert page(port, "SELECT 1 AS one").rows == [["1"]]  # only one query runs at a time


def test_a_query_that_needs_too_much_memory_names_the_limit(port: int) -> None:
    large = "SELECT array_length(array_agg(repeat('x', 1000))) AS n FROM generate_series(1, 10000000)"
    assert (
        f"more than the {MAX_GROWTH_BYTES >> 20} MB of memory"
        in get(port, f"/sql?{urlencode({'statement': large})}").text
    )
    assert page(port, "SELECT 1 AS one").rows == [["1"]]
