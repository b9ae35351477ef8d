"""The command `offsetlake report`: its output, the file it writes, and its errors."""

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
    assert [line.split("s  ")[1] for line in err.splitlines()][:2] == [
        "loading Matplotlib", "finding the newest record",
    ]  # fmt: skip
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.sections["Commit rate"].rows[1][0] == "billing"
    assert {entry.name for entry in tmp_path.iterdir()} == {"lake", "report.html"}


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
