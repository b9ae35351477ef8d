"""The command `offsetlake report`: its output, the file it writes, and its errors."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import Run
from support.queries.lakes import commit, small_lake
from support.report.pages import Page


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return small_lake(
        tmp_path / "lake", offset_commits=[commit(1, 5, group_id="billing", log_timestamp=5)]
    ).location.path


@pytest.mark.usefixtures("lake")
def test_page_replaces_an_existing_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("an older report")
    code, out, err = run("report", "--group", "bill*", "--since", "1970-01-01")
    assert code == 0
    assert out.startswith("Wrote report.html (")
    assert err.splitlines()[0].endswith("s  finding the newest record")
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.sections["Commit rate"].rows[1][0] == "billing"
    assert {entry.name for entry in tmp_path.iterdir()} == {"lake", "report.html"}


@pytest.mark.long
def test_charts_are_drawn_after_the_last_query(lake: Path) -> None:
    program = f"""
import sys
from offsetlake.lake.lake import Lake
from offsetlake.web.report.report import content
from offsetlake.rules.policy import RetentionPolicy
loaded = lambda step: print(step, "matplotlib" in sys.modules, sep=", ")
content(Lake.open({str(lake)!r}), RetentionPolicy(1), None, None, loaded)
loaded("the end")
"""
    lines = subprocess.check_output([sys.executable, "-c", program], text=True).splitlines()
    assert [line for line in lines if line.endswith("True")] == ["the end, True"]
    assert lines[-2] == "drawing charts, False"


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        (("--lake", "none"), 6, "no lake in none: `offsetlake run --lake none --log FOLDER` creates one"),
        (("--group", "payments"), 2, "no group like 'payments' is in history"),
        (("--since", "noon"), 2, "Invalid timestamp 'noon'"),
        (("--to", "lake/lock/report.html"), 2, "Cannot write the report to lake/lock/report.html: File exists."),
        (("--to", "lake"), 2, "Cannot write the report to lake: Is a directory."),
    ],
)
def test_invalid_option_is_reported_in_one_line(
    run: Run, tmp_path: Path, options: tuple[str, ...], code: int, error: str
) -> None:
    exit_code, out, err = run("report", *options)
    assert (exit_code, out) == (code, "")
    assert error in err.splitlines()[-1]
    assert {entry.name for entry in tmp_path.iterdir()} == {"lake"}


@pytest.mark.usefixtures("lake")
def test_missing_folder_of_the_page_is_created(run: Run, tmp_path: Path) -> None:
    assert run("report", "--to", "www/of/offsets.html")[0] == 0
    assert [entry.name for entry in (tmp_path / "www" / "of").iterdir()] == ["offsets.html"]


@pytest.mark.long
@pytest.mark.slow
def test_a_fleet_has_a_report_for_each_lake_and_an_index(lake: Path, tmp_path: Path) -> None:
    rows = [commit(1, 9, group_id="<b>late", log_timestamp=5), commit(2, 4, group_id="<b>late", log_timestamp=6)]
    small_lake(tmp_path / "other", offset_commits=rows)
    places = {"index": lake, "us.html": "other", "gone": "none"}
    (tmp_path / "lakes.toml").write_text("".join(f'[lakes."{name}"]\nlake = "{places[name]}"\n' for name in places))
    command = [sys.executable, "-m", "offsetlake.cli", "report", "--fleet", "lakes.toml", "--to", "www/all"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 6
    assert done.stdout == "Wrote www/all/index.html, and a report for 2 of 3 lakes: open it in a browser\n"
    assert done.stderr.splitlines()[-1].startswith("error: gone: no lake in none: ")
    files = {str(path.relative_to(tmp_path / "www" / "all")) for path in (tmp_path / "www").rglob("*.html")}
    assert files == {"index.html", "lakes/index.html", "lakes/us.html.html"}

    text = (tmp_path / "www" / "all" / "index.html").read_text(encoding="utf-8")
    index = Page(text)
    assert index.facts == {"lakes": "3", "lakes that failed": "1", "lakes that need attention": "1"}
    assert [row[0] for row in index.sections["Lakes that failed"].rows] == ["cluster", "gone"]
    assert [row[0] for row in index.sections["What needs attention"].rows[1:]] == ["us.html"]
    assert "<b>late, t:0: 5 records read again" in index.sections["What needs attention"].rows[1][3]
    assert [row[:5] for row in index.sections["Lakes"].rows] == [
        ["cluster", "problems", "groups", "offsets", "commits and tombstones"],
        ["index", "0", "0", "0", "1"],
        ["us.html", "1", "0", "0", "2"],
    ]  # fmt: skip
    assert "b" not in index.tags
    assert {*re.findall(r'href="([^"]*)"', text)} == files - {"index.html"}
    assert (
        "<b>late"
        in Page((tmp_path / "www" / "all" / "lakes" / "us.html.html").read_text()).sections["Commit rate"].rows[1][0]
    )
