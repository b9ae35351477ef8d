"""The columns of tables, views and answers in JSON and CSV, compared with the list in tests/fixtures/columns.json.

`pytest tests/cli/test_stable_columns.py --refresh-examples` writes the list anew.
"""

import csv
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from typer.main import get_command

from offsetlake.cli import output
from offsetlake.cli.app import app
from offsetlake.lake.definitions import LAKE_VERSION, TABLES
from offsetlake.lake.files import table_schema
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.views import views
from offsetlake.log.writer.example_log import write_example
from offsetlake.pipeline import runner
from support.command_line import Run
from support.documents import ROOT
from support.e2e.in_process import InProcess, NoSpark
from support.e2e.lakes import cycle
from support.lakes import new_lake
from support.queries.lakes import commit, end, small_lake

LIST = ROOT / "tests" / "fixtures" / "columns.json"
WHAT_TO_DO = (
    "Other programs read these columns by name, so a change of them is a new version of the lake. Increment "
    "LAKE_VERSION in lib/offsetlake/lake/definitions.py; append new columns of tables as nullable, with that version "
    "in `since`, so that older lakes are migrated; describe the change in CHANGELOG.md; then write the list anew "
    "with `pytest tests/cli/test_stable_columns.py --refresh-examples`."
)
QUESTIONS = {
    "alterations": "alterations",
    "audit": "audit",
    "audit-events": "audit-events",
    "check": "check",
    "cleanup": "cleanup old-billing",
    "diff": "diff --from 2026-01-31T14:00:05 --to 2026-01-31T14:00:10",
    "expire --what-if": "expire --what-if --now 2026-02-01",
    "expire --what-if --retention 3d": "expire --what-if --now 2026-02-01 --retention 3d",
    "groups": "groups",
    "groups --as-of": "groups --as-of 2026-01-31T14:00:10",
    "history": "history --group billing --topic orders --partition 0",
    "lag": "lag --lake lag",
    "lag --over-time": "lag --lake lag --group g --over-time",
    "lag --standby": "lag --standby lake",
    "lag --partitions": "lag --lake lag --partitions",
    "maintain": "maintain",
    "offsets": "offsets",
    "offsets --as-of": "offsets --as-of 2026-01-31T14:00:10",
    "reject": "reject",
    "reject --of": "reject --of orphans",
    "repair": "repair",
    "reset": "reset billing --all-topics --shift-by -100",
    "restore": "restore billing --as-of 2026-01-31T14:00:05",
    "runs": "runs",
    "runs --cycles": "runs --cycles",
    "share": "share",
    "share --as-of": "share --as-of 2026-01-31T14:00:10",
    "share --batches": "share --batches",
    "tombstones": "tombstones",
    "transactions": "transactions --now 2026-02-01",
    "undelete": "undelete nightly-report",
    "forget": "forget --principal User:mallory",
}
"""The questions, and a command line of each."""

SAME_AS_MAINTAIN = {"run", "ingest", "compact", "expire", "emit", "rebuild"}
"""Jobs, which write the same columns as `maintain`; `expire --what-if` is a question."""

SELECTS = {"sql"}
"""Commands whose argument determines the columns."""

NEEDS_ZOOKEEPER = {"import", "export"}
"""Commands that need ZooKeeper: tests/zookeeper compares the columns of `import` with those of `reset`, and lists those
of `export`."""
TWO_CLUSTERS = {"translate"}
"""Commands that need two clusters: tests/e2e/live/test_translate.py compares their columns with those of `undelete`."""

Columns = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the example log and its lake, and a small lake `lag` with log end offsets."""
    made = tmp_path_factory.mktemp("stable")
    write_example(made / "log")
    cycle(InProcess(), new_lake(made / "lake"), made / "log")
    runs = [{"run_id": run, "job": "ingest", "started_at": run, "finished_at": run} for run in (1, 2)]
    commits = [commit(1, 4, ingest_run=1), commit(2, 5, ingest_run=2)]
    small_lake(made / "lag", offset_commits=commits, log_ends=[end(1, 5), end(2, 9)], runs=runs)
    return made


@pytest.fixture
def answered(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> "Answered":
    monkeypatch.chdir(folder)
    monkeypatch.setattr(runner, "LazySession", NoSpark)
    return Answered(run, monkeypatch)


class Answered:
    """Runs a command line and returns the columns of its answer, which are the same in JSON and CSV."""

    def __init__(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        self._run = run
        self._schemas: list[pa.Schema] = []
        write_json = output._write_json

        def recording(answer: pa.Table, out: Any) -> None:
            self._schemas.append(answer.schema)
            write_json(answer, out)

        monkeypatch.setattr(output, "_write_json", recording)

    def __call__(self, line: str) -> dict[str, str]:
        rows = [json.loads(row) for row in self._written(line, "json")]
        (schema,) = self._schemas
        columns = typed(schema)
        assert all([*row] == [*columns] for row in rows)
        assert next(csv.reader(self._written(line, "csv"))) == [*columns]
        return columns

    def _written(self, line: str, style: str) -> list[str]:
        code, out, err = self._run(*shlex.split(line), "--format", style)
        assert code == 0, err
        return out.splitlines()


def typed(schema: pa.Schema) -> dict[str, str]:
    """Return the names and types of columns, as far as readers see them: a dictionary is the type of its values."""
    kinds = {field.name: field.type for field in schema}
    texts = {name: str(kind.value_type if pa.types.is_dictionary(kind) else kind) for name, kind in kinds.items()}
    return {name: re.sub(r"(?<=list<)\w+: | not null", "", text) for name, text in texts.items()}


def compare(kind: str, found: Columns, *, refresh: bool) -> None:
    """Compare columns with the list or, with `refresh`, replace those in the list."""
    listed = json.loads(LIST.read_text(encoding="utf-8"))
    if refresh:
        columns = listed | {"lake_version": LAKE_VERSION, kind: dict(sorted((listed[kind] | found).items()))}
        LIST.write_text(json.dumps(columns, indent=1) + "\n", encoding="utf-8")
        return
    for name, columns in found.items():
        expected = listed[kind].get(name, {})
        changes = [
            *(f"removed {column}" for column in expected if column not in columns),
            *(f"added {column} ({columns[column]})" for column in columns if column not in expected),
            *(
                f"changed {column} from {expected[column]} to {columns[column]}"
                for column in columns
                if expected.get(column, columns[column]) != columns[column]
            ),
        ]
        assert not changes, f"The columns of {name} ({kind}) changed: {', '.join(changes)}. {WHAT_TO_DO}"
        assert [*columns] == [*expected], f"The order of the columns of {name} ({kind}) changed. {WHAT_TO_DO}"
    assert listed["lake_version"] == LAKE_VERSION, f"The list is of lake version {listed['lake_version']}. {WHAT_TO_DO}"


@pytest.fixture
def refresh(pytestconfig: pytest.Config) -> bool:
    return bool(pytestconfig.getoption("refresh_examples"))


def test_columns_of_tables_are_stable(refresh: bool) -> None:
    compare("tables", {table: typed(table_schema(table)) for table in TABLES}, refresh=refresh)


def test_columns_of_views_are_stable(folder: Path, refresh: bool) -> None:
    lake = Lake.open(folder / "lake")
    found = {view: typed(lake.query(f"SELECT * FROM {view} LIMIT 0", view).schema) for view in views()}
    assert {view: [*columns] for view, columns in found.items()} == {
        view.name: [*view.columns] for view in views().values()
    }
    compare("views", found, refresh=refresh)


@pytest.mark.parametrize(
    "question", [pytest.param(name, marks=pytest.mark.long if name == "check" else ()) for name in QUESTIONS]
)
@pytest.mark.slow
def test_columns_of_questions_are_stable(answered: Answered, question: str, refresh: bool) -> None:
    compare("questions", {question: answered(QUESTIONS[question])}, refresh=refresh)


@pytest.mark.slow
def test_audit_of_a_view_has_the_columns_of_the_view(run: Run, folder: Path) -> None:
    for view in views().values():
        code, out, err = run("audit", view.name, "--lake", str(folder / "lake"), "--format", "csv", "--limit", "1")
        assert code == 0, err
        assert out.splitlines()[0].split(",") == [*view.columns]


def test_list_has_every_table_view_and_command_with_a_format() -> None:
    listed = json.loads(LIST.read_text(encoding="utf-8"))
    assert {kind: {*listed[kind]} for kind in ("tables", "views", "questions")} == {
        "tables": {*TABLES}, "views": {*views()}, "questions": {*QUESTIONS},
    }  # fmt: skip
    commands: Any = get_command(app)
    with_format = {name for name, command in commands.commands.items() if has_format(command)}
    elsewhere = NEEDS_ZOOKEEPER | TWO_CLUSTERS
    assert with_format == {name.split()[0] for name in QUESTIONS} | SAME_AS_MAINTAIN | SELECTS | elsewhere


def has_format(command: typer.core.TyperCommand) -> bool:
    return any("--format" in parameter.opts for parameter in command.params)


def test_changed_columns_are_reported_with_what_to_do() -> None:
    columns = typed(table_schema("log_ends"))
    changed = {"log_ends": {"topic": "int64", **{name: columns[name] for name in [*columns][2:]}, "rack": "string"}}
    message = r"removed .*, added rack \(string\), changed topic from string to int64\. .* Increment LAKE_VERSION"
    with pytest.raises(AssertionError, match=message):
        compare("tables", changed, refresh=False)
