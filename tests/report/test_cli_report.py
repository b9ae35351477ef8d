"""`offsetlake report` as a person calls it: what it says, what it writes, and what it leaves alone."""

from pathlib import Path

import pytest

from support.command_line import Run
from support.queries.lakes import commit, small_lake
from support.report.pages import Page


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return small_lake(tmp_path / "lake", offset_commits=[commit(1, 5, group_id="billing", log_timestamp=5)]).path


@pytest.mark.usefixtures("lake")
def test_the_page_is_written_and_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("of yesterday")
    code, out, err = run("report", "--group", "bill*", "--since", "1970-01-01")
    assert code == 0
    assert out.startswith("report.html: ")
    assert [line.split("s  ")[1] for line in err.splitlines()][:2] == [
        "loading Matplotlib", "looking for the newest record",
    ]  # fmt: skip
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.parts["Commit rate"].rows[1][0] == "billing"
    assert {entry.name for entry in tmp_path.iterdir()} == {"lake", "report.html"}


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--lake", "none"), 6, "no lake in none: `offsetlake run --lake none --log FOLDER` creates one"),
        (("--group", "payments"), 2, "no group like 'payments' is in history"),
        (("--since", "noon"), 2, "'noon' is no instant"),
        (("--to", "lake/lock/report.html"), 2, "cannot be written to lake/lock/report.html: File exists"),
        (("--to", "lake"), 2, "the report cannot be written to lake: Is a directory"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(
    run: Run, tmp_path: Path, options: tuple[str, ...], code: int, said: str
) -> None:
    left, out, err = run("report", *options)
    assert (left, out) == (code, "")
    assert said in err.splitlines()[-1]
    assert {entry.name for entry in tmp_path.iterdir()} == {"lake"}


@pytest.mark.usefixtures("lake")
def test_its_folder_is_made(run: Run, tmp_path: Path) -> None:
    assert run("report", "--to", "www/of/offsets.html")[0] == 0
    assert [entry.name for entry in (tmp_path / "www" / "of").iterdir()] == ["offsets.html"]
