"""The content of the report and the results of checks in the console, beside those of the commands."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from offsetlake.lake import current_run, plans
from offsetlake.lake.lake import Lake
from offsetlake.pipeline import runner
from offsetlake.web.report.report import report
from support.console.changes import commit, example
from support.console.served import POLICY, Answer, Page, gate, get, served
from support.console.visitors import acl_file
from support.queries.lakes import small_lake
from support.report.report_rows import TAGS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live")
    example(folder)
    return folder


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    with served(folder / "lake") as listening:
        yield listening


def completed(port: int, path: str, **headers: str) -> Answer:
    """Return a page when its content is computed."""
    get(port, path, **headers)
    for thread in threading.enumerate():
        if thread.name == "live-content":
            thread.join(300)
    answer = get(port, path, **headers)
    assert "retry-after" not in answer.headers
    return answer


@pytest.mark.long
def test_attention_is_that_of_the_report(port: int, folder: Path) -> None:
    first = get(port, "/attention")
    assert (first.headers["retry-after"], "is being computed" in first.text) == ("2", True)
    page = Page(completed(port, "/attention").text)
    expected = report(Lake.open(folder / "lake"), POLICY, None, None, lambda _: None)
    problems = [[row["problem"], row["worst or newest"]] for row in expected.problems]
    assert [[row[0], row[2]] for row in page.rows] == problems
    assert page.links["unexplained regressions"] == "/group?group=billing"
    assert page.links["unused groups"] == "/review?show=orphans"
    landing = get(port, "/").text
    assert "/static/attention.js" in landing
    assert "/static/attention.js" not in get(port, "/?q=b").text
    assert "/static/attention.js" not in get(port, "/?at=2026-01-31").text


def test_the_sections_are_those_of_the_report(port: int, folder: Path) -> None:
    page = completed(port, "/report")
    expected = report(Lake.open(folder / "lake"), POLICY, None, None, lambda _: None)
    shown = Page(page.text)
    for name, value in expected.facts.items():
        assert name in shown.text
        assert value in shown.text
    pictures = [str(attributes["src"]) for tag, attributes in shown.tags if tag == "img"]
    assert pictures
    for address in pictures:
        picture = get(port, address)
        assert (picture.status, picture.headers["content-type"]) == (200, "image/svg+xml")
        assert "<svg" in picture.text
        policy = picture.headers["content-security-policy"]
        assert policy == "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    assert get(port, "/report/0.svg").status == get(port, "/report/99.svg").status == 404
    assert shown.command == f"offsetlake report --lake={folder / 'lake'}"


@pytest.mark.long
def test_checks_are_those_of_the_command(port: int, folder: Path, run: object) -> None:
    page = Page(completed(port, "/checks").text)
    code, out, _ = run("check", "--lake", str(folder / "lake"), "--format", "json")  # type: ignore[operator]
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert {(row[0], row[2]) for row in page.rows} == {(row["expectation"], row["observed"]) for row in rows}
    assert {row[1] for row in page.rows} == {"met"}


def test_a_failed_check_and_hostile_names_are_shown_as_text(tmp_path: Path) -> None:
    row = {"group_id": TAGS, "topic": TAGS, "partition": 0, "committed_offset": 4, "log_offset": 1}
    small_lake(tmp_path / "lake", groups=[{"group_id": TAGS}], offsets=[row], offset_commits=[])
    with served(tmp_path / "lake") as port:
        for path in ("/checks", "/attention", "/report"):
            page = Page(completed(port, path).text)
            assert {a.get("src") for tag, a in page.tags if tag == "script"} == {"/static/console.js"}
        assert "not met" in [row[1] for row in Page(get(port, "/checks").text).rows]


@pytest.mark.long
def test_the_content_follows_the_lake(tmp_path: Path) -> None:
    bench = example(tmp_path)
    with served(tmp_path / "lake") as port:
        before = completed(port, "/report").text
        commit(tmp_path, "another", "orders", 5, 10)
        runner.catch_up(Lake.create(tmp_path / "lake"), bench.log, lambda _: None)
        assert "The tables have changed" in get(port, "/report").text
        assert completed(port, "/report").text != before


@pytest.mark.long
def test_checks_are_refused_while_a_job_is_unfinished_and_the_report_is_not(tmp_path: Path) -> None:
    bench = example(tmp_path)
    lake = Lake.create(tmp_path / "lake")
    plan = current_run.begin(lake, "expire", plans.Plan())
    with served(tmp_path / "lake") as port:
        assert "billing" in completed(port, "/attention").text
        refused = completed(port, "/checks")
        assert (refused.status, "is running or was interrupted" in refused.text) == (503, True)
        assert completed(port, "/checks").status == 503
        current_run.finish(lake, "expire", plan, outcome="done", counts={})
        runner.catch_up(lake, bench.log, lambda _: None)
        assert completed(port, "/checks").status == 200


def test_only_those_who_read_all_groups_see_the_content(folder: Path, tmp_path: Path) -> None:
    with served(folder / "lake", gate(acl=acl_file(tmp_path, ("*", "billing", ["read"])))) as port:
        paths = ("/attention", "/report", "/checks", "/report/1.svg")
        assert [get(port, path).status for path in paths] == [403] * 4
        assert "/static/attention.js" not in get(port, "/").text
