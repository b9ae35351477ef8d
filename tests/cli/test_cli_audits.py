"""`audit`, `diff` and `views` through the command line: answers, errors and exit codes."""

import json
import shlex
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from offsetlake.cli import progress
from offsetlake.errors import NotEnoughMemory
from offsetlake.lake.definitions import TABLES
from offsetlake.lake.sql import engine
from offsetlake.lake.sql.views import views
from support.command_line import Run
from support.queries.lakes import Row, commit, small_lake, tombstone

FAR = 2**63 - 1


def in_group(group_id: str, topic: str, *rows: Row) -> list[Row]:
    return [{**row, "group_id": group_id, "topic": topic} for row in rows]


@pytest.fixture
def lake(tmp_path: Path, run: Run) -> Path:
    """A lake in the default folder; the timestamp of each record equals its log offset."""
    small_lake(
        tmp_path / "lake",
        offset_commits=[
            *in_group("billing-1", "a", commit(1_000, 5), commit(2_000, 9), commit(3_000, 7)),
            *in_group("billing-2", "a", commit(1_500, FAR), commit(2_500, -FAR - 1)),
            *in_group("billing-2", "b", commit(1_600, 4), tombstone(2_600)),
            *in_group("it's", "a", commit(1_700, 1)),
        ],
    )
    return tmp_path / "lake"


def query(run: Run, *arguments: str) -> list[dict[str, Any]]:
    """Return the answer of a command, which must succeed."""
    code, out, err = run(*arguments, "--format", "json")
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def test_audit_without_a_view_lists_all_views(run: Run) -> None:
    listed = query(run, "audit")
    assert {row["view"]: row["answers"] for row in listed} == {name: view.answers for name, view in views().items()}


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ((), [3_000, 2_600, 2_500, 2_000, 1_700, 1_600, 1_500, 1_000]),
        (("--limit", "2"), [3_000, 2_600]),
        (("--group", "billing-*", "--topic", "a"), [3_000, 2_500, 2_000, 1_500, 1_000]),
        (("--group", "it's"), [1_700]),
        (("--since", "2500"), [3_000, 2_600, 2_500]),
        (("--since", "1970-01-01T00:00:09"), []),
    ],
)
def test_audit_applies_its_filters(run: Run, options: tuple[str, ...], changes: list[int]) -> None:
    assert [row["log_offset"] for row in query(run, "audit", "changes", *options)] == changes


@pytest.mark.usefixtures("lake")
def test_audit_returns_the_worst_rows_first(run: Run) -> None:
    assert [row["records_again"] for row in query(run, "audit", "regressions")] == [2 * FAR + 1, 2]


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            (),
            [
                ("billing-1", "a", 5, 9, 4), ("billing-2", "a", FAR, -FAR - 1, -2 * FAR - 1),
                ("billing-2", "b", 4, None, None),
            ],
        ),
        (("--limit", "1"), [("billing-1", "a", 5, 9, 4)]),
        (("--group", "billing-2", "--topic", "b"), [("billing-2", "b", 4, None, None)]),
        (("--group", "it's"), []),
    ],
)  # fmt: skip
def test_diff_returns_offsets_that_differ(
    run: Run, options: tuple[str, ...], expected: list[tuple[object, ...]]
) -> None:
    rows = query(run, "diff", "--from", "1999", "--to", "2999", *options)
    columns = ("group_id", "topic", "from_offset", "to_offset", "difference")
    assert [tuple(row[name] for name in columns) for row in rows] == expected


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("audit chang", "changes"),
        ("sql 'SELECT * FROM chnges'", "changes"),
        ("sql 'SELECT * FROM ofsets'", "offsets"),
        ("audit unheard", None),
    ],
)
def test_similar_views_and_tables_are_suggested(run: Run, arguments: str, meant: str | None) -> None:
    code, _, errors = run(*shlex.split(arguments))
    assert code == 2
    assert ("Did you mean" in errors) == (meant is not None)
    assert meant is None or errors.endswith(f" Did you mean {meant!r}?\n")


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("audit nope", "There is no view 'nope'. Views are changes, cold_share_partitions"),
        ("audit changes --group nobody-*", "no group like 'nobody-*' is in history, as far as the lake"),
        ("audit changes --topic nope", "no offset of topic nope was ever committed"),
        ("audit idle_groups --topic a", "idle_groups has no column topic: leave --topic out; its columns: group_id"),
        ("audit log_clock --group *", "log_clock has no column group_id: leave --group out"),
        ("audit changes --since soon", "Invalid timestamp 'soon'"),
        ("diff --from 2000 --to 1999", "--to 1970-01-01T00:00:01.999Z is before --from 1970-01-01T00:00:02.000Z"),
        ("diff --from 999 --to 2000", "history begins at 1970-01-01T00:00:01.000Z"),
        ("diff --from 1000 --to 2000 --group nobody", "no offset of group nobody was ever committed"),
        ("diff --from 1000 --to 2000 --group it's --topic b", "no offset of group it's, topic b was ever committed"),
        ("diff --from 1000", "Missing option '--to'"),
        (
            "history --group nobody --topic a --partition 0",
            "no offset of group nobody, topic a, partition 0 was ever committed",
        ),
        (
            "history --group it's --topic a --partition 9",
            "no offset of group it's, topic a, partition 9 was ever committed",
        ),
        ("offsets --group nobody", "no offset of group nobody was ever committed"),
        ("offsets --topic nope", "no offset of topic nope was ever committed"),
        ("offsets --group it's --topic b", "no offset of group it's, topic b was ever committed"),
        ("offsets --group nobody --as-of 2000", "no offset of group nobody was ever committed"),
        ("groups --group nobody", "no group like 'nobody' is in history, as far as the lake"),
        ("audit-events --group no*", "no group like 'no*' is in history, as far as the lake"),
        ("alterations --group no*", "no group like 'no*' is in history, as far as the lake"),
        ("tombstones --group no*", "no group like 'no*' is in history, as far as the lake"),
        ("expire --what-if --group no*", "no group like 'no*' is in history, as far as the lake"),
        ("report --group no*", "no group like 'no*' is in history, as far as the lake"),
    ],
)
def test_invalid_arguments_are_one_line_and_exit_code_2(run: Run, arguments: str, says: str) -> None:
    code, out, err = run(*arguments.split())
    assert (code, out) == (2, "")
    assert says in err
    assert err.splitlines()[-1].startswith("error: ")
    assert err.count("\n") == 1 or arguments.startswith("report")  # which also writes progress


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    "arguments",
    [
        "offsets --group billing-2 --topic b --as-of 2600",
        "groups --group it's --state Stable",
        "alterations --group b*",
        "tombstones --group b*",
        "audit-events --group it's",
        "expire --what-if --group b*",
    ],
)
def test_known_group_without_rows_is_no_error(run: Run, arguments: str) -> None:
    code, out, err = run(*arguments.split(), "--format", "csv")
    assert (code, out.count("\n"), err) == (0, 1, "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("audit changes", "contains no history yet: `offsetlake run` reads the log"),
        ("diff --from 1000 --to 2000", "contains no record with a time yet: `offsetlake run` reads the log"),
        ("history --group g --topic a --partition 0", "no offset of group g, topic a, partition 0 was ever committed"),
    ],
)
def test_lake_without_history_is_an_error(run: Run, tmp_path: Path, arguments: str, says: str) -> None:
    small_lake(tmp_path / "lake")
    code, out, err = run(*arguments.split())
    assert (code, out) == (2, "")
    assert says in err


@pytest.mark.parametrize(
    "arguments", ["audit changes", "views", "views --catalog a.b --dialect dbt", "sql 'SELECT * FROM changes'"]
)
def test_lake_of_an_older_version_is_an_error(run: Run, lake: Path, arguments: str) -> None:
    (lake / "offsetlake.json").write_text('{"version": 2}')
    code, out, err = run(*shlex.split(arguments))
    assert (code, out) == (6, "")
    assert "an older offsetlake made the lake" in err


def test_missing_table_fails_only_views_that_read_it(run: Run, lake: Path) -> None:
    shutil.rmtree(lake / "alterations")
    code, out, err = run("audit", "changes")
    assert (code, out) == (6, "")
    assert "table alterations of the lake" in err
    assert "is missing" in err
    assert len(query(run, "audit", "commit_steps")) == 8  # this view does not read that table


def test_views_prints_a_statement_for_each_table_and_view(run: Run, lake: Path) -> None:
    code, out, err = run("views", "--lake", str(lake))
    assert (code, err) == (0, "")
    statements = [statement.strip() for statement in out.split(";\n\n")]
    assert [statement.split()[5] for statement in statements if statement] == [*TABLES, *views()]
    assert f"VIEW offsets USING delta OPTIONS (path '{lake}/offsets')" in out


@pytest.mark.parametrize(
    ("options", "statement"),
    [
        ((), "CREATE TABLE IF NOT EXISTS `main`.`kafka`.offsets USING delta LOCATION '{}/offsets';"),
        (("--dialect", "databricks"), "CREATE TABLE IF NOT EXISTS `main`.`kafka`.runs USING delta LOCATION '{}/runs';"),
        (("--dialect", "trino"), "CALL \"main\".system.register_table(schema_name => 'kafka', table_name => 'runs', "),
        (
            ("--dialect", "duckdb"),
            'CREATE OR REPLACE VIEW "main"."kafka".runs AS\nSELECT * FROM delta_scan(\'{}/runs\');',
        ),
        (("--dialect", "dbt"), '- name: "runs"'),
    ],
)
def test_views_in_a_catalog(run: Run, lake: Path, options: tuple[str, ...], statement: str) -> None:
    code, out, err = run("views", "--lake", str(lake), "--catalog", "main.kafka", *options)
    assert (code, err) == (0, "")
    assert statement.format(lake) in out


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--dialect", "trino"), "--dialect requires --catalog CATALOG.SCHEMA"),
        (("--catalog", "kafka"), "Invalid catalog 'kafka': expected CATALOG.SCHEMA"),
        (("--catalog", "main.kafka", "--dialect", "mysql"), "'mysql' is not one of"),
    ],
)
def test_views_refuses_invalid_options(run: Run, options: tuple[str, ...], message: str) -> None:
    code, out, err = run("views", *options)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sql", "SELECT 1"], "running the query"),
        (["audit", "changes"], "querying changes"),
        (["groups", "--as-of", "3000"], "looking up groups as of 3000"),
        (["offsets", "--as-of", "3000"], "looking up offsets as of 3000"),
    ],
)
def test_slow_query_writes_its_step(run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str) -> None:
    class Fired(threading.Timer):
        def start(self) -> None:
            if self.args:
                self.function(*self.args)

        def cancel(self) -> None: ...

    monkeypatch.setattr(progress.threading, "Timer", Fired)
    code, _, err = run(*arguments)
    assert (code, err.splitlines()[0].split("s  ")[1]) == (0, says)


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    "arguments",
    [
        ("audit", "changes"),
        ("sql", "SELECT 1"),
        ("diff", "--from", "1500", "--to", "2500"),
        ("offsets", "--as-of", "2500"),
        ("groups", "--as-of", "2500"),
        ("lag",),
        ("lag", "--group", "billing-1", "--over-time"),
        ("report", "--to", "report.html"),
    ],
    ids=" ".join,
)
def test_commands_that_read_history_run_under_the_memory_limit(
    run: Run, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def exceeded(_exit_code: int, explanation: str, _clean_up: object) -> Iterator[None]:
        raise NotEnoughMemory(explanation)
        yield

    monkeypatch.setattr(engine, "limited", exceeded)
    code, _, err = run(*arguments)
    assert code == NotEnoughMemory.exit_code
    assert err.splitlines()[-1] == f"error: {engine.TOO_LARGE}"
