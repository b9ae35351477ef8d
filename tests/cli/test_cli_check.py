"""`offsetlake check`: its output, exit codes and HTML pages."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from offsetlake.lake.delta.commits import ours
from offsetlake.lake.lake import Lake
from support.command_line import Run
from support.e2e.lakes import upkeep
from support.lakes import new_lake

ODD_NAME = "<script>alert($column)</script>"


@pytest.fixture
def lake(broker_lake: Lake, tmp_path: Path) -> Lake:
    """A lake of the log of a real broker, in the default folder."""
    return Lake.open(Path(shutil.copytree(broker_lake.location.path, tmp_path / "lake")))


@pytest.fixture
def broken(lake: Lake) -> Lake:
    """A lake with an offset of a group that does not exist."""
    lake.delta_table("offsets").update(
        updates={"group_id": f"'{ODD_NAME}'"},
        predicate="group_id = 'ab-test' AND \"partition\" = 2",
        commit_properties=ours("fault", 1),  # changes of other programs are refused before any check
    )
    return lake


def checked(run: Run, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    code, out, err = run("check", *arguments, "--format", "json")
    return code, [json.loads(line) for line in out.splitlines()], err


@pytest.mark.slow
def test_met_expectations_are_reported_with_table_versions(run: Run, lake: Lake) -> None:
    code, rows, err = checked(run)
    assert code == 0, err
    assert {row["suite"] for row in rows} == {"after_compact", "after_expire", "after_emit"}
    assert all(row["success"] is True for row in rows)
    assert all(list(row) == ["suite", "expectation", "table", "version", "success", "observed"] for row in rows)
    now = lake.versions(*{row["table"] for row in rows})
    assert {row["table"]: row["version"] for row in rows} == now
    assert f"offsets={now['offsets']}," in err
    assert "had no rows to check" in err, "no tombstone is planned or emitted"
    assert "had no rows to check" not in checked(run, "--gate")[2], "it is like that in each cycle"
    (once,) = [row for row in rows if row["expectation"] == "each group, topic and partition is in offsets once"]
    assert once["observed"] == f"none of {lake.count('offsets')} rows"
    assert not (Path.home() / ".great_expectations").exists()


@pytest.mark.slow
def test_failed_expectation_names_group_and_rule_and_writes_pages(run: Run, broken: Lake) -> None:
    code, rows, err = checked(run, "--suite", "after_compact", "--docs", "pages")
    assert code == 9
    failed = [row for row in rows if not row["success"]]
    rule = "each group with offsets is in groups, unless it has a tombstone after them"
    observed = f"1 row: group_id={ODD_NAME} log_partition=18 log_offset=2"
    assert [row["observed"] for row in failed if row["expectation"] == rule] == [observed]
    (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
    version = broken.versions("groups")["groups"]
    assert f"after_compact: {rule}; in groups at version {version}: {observed}" in line
    assert line.startswith(f"error: {len(failed)} of {len(rows)} expectations failed. ")
    pages = [page.read_text(encoding="utf-8") for page in Path("pages").rglob("*.html")]
    (page,) = [page for page in pages if rule in page and "In groups at version" in page and "Failed" in page]
    assert "group_id=&lt;script&gt;alert(&#36;column)&lt;/script&gt; log_partition=18" in page
    assert ODD_NAME not in "".join(pages)


@pytest.mark.slow
def test_check_of_older_versions_reads_them_until_they_are_vacuumed(run: Run, broken: Lake) -> None:
    now = broken.versions("offset_commits", "offsets")
    assert checked(run, "--suite", "after_compact", "--versions", f"offsets={now['offsets']}")[0] == 9
    before = f"offsets={now['offsets'] - 1}"
    code, _, err = checked(run, "--suite", "after_compact", "--versions", before)
    assert code == 2
    assert f"offsets is at version {now['offsets']} by now: with its version {now['offsets'] - 1}, also name" in err
    others = (
        "offset_commits",
        "transaction_markers",
        "group_records",
        "share_state_records",
        "quarantine",
        "audit_events",
    )
    state = (
        "pending_offsets",
        "groups",
        "group_members",
        "share_partitions",
        "unresolved_records",
        "history_cuts",
        "runs",
    )
    pins = ",".join(f"{table}={version}" for table, version in broken.versions(*others, *state).items())
    code, rows, err = checked(run, "--suite", "after_compact", "--versions", f"{before},{pins}")
    assert (code, all(row["success"] for row in rows)) == (0, True), err
    upkeep(broken)
    code, _, err = checked(run, "--suite", "after_compact", "--versions", f"{before},{pins}")
    assert code == 6
    assert before in err
    assert "`offsetlake maintain`" in err


@pytest.mark.slow
def test_empty_lake_has_no_rows_to_check(run: Run, tmp_path: Path) -> None:
    new_lake(tmp_path / "lake")
    code, rows, err = checked(run)
    assert (code, {row["observed"] for row in rows}) == (0, {"nothing to check"})
    for each in (err, checked(run, "--gate")[2]):
        assert f"{len(rows)} of {len(rows)} expectations had no rows to check: their tables are empty" in each


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--lake", "nowhere"], 6, "no lake in nowhere"),
        (["--suite", "after_lunch"], 2, "there is no suite 'after_lunch'; suites are after_compact, after_emit"),
        (
            ["--versions", "offsets"],
            2,
            "Invalid --versions 'offsets': expected TABLE=VERSION pairs such as offsets=12,groups=7",
        ),
        (["--versions", "offsets=-1"], 2, "Invalid --versions 'offsets=-1'"),
        (["--versions", "offsets=1,offsets=2"], 2, "a table is named twice"),
        (["--versions", "orders=1"], 2, "there is no table 'orders'; tables are offset_commits"),
        (["--versions", "offsets=999"], 2, "there is no version 999 of offsets yet: it is at"),
    ],
)
@pytest.mark.usefixtures("lake")
def test_invalid_arguments_are_one_line(run: Run, arguments: list[str], code: int, says: str) -> None:
    exit_code, out, err = run("check", *arguments)
    assert (exit_code, out) == (code, "")
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("lake")
def test_unwritable_pages_are_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    code, _, err = run("check", "--suite", "after_emit", "--docs", "taken")
    assert code == 2
    assert "the pages cannot be written to taken: File exists" in err


def test_application_does_not_import_slow_libraries() -> None:
    slow = "{'great_expectations', 'matplotlib', 'jinja2', 'kafka'}"
    program = f"import sys, offsetlake.cli.app; print(bool(sys.modules.keys() & {slow}))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"
