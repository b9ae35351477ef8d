"""The Python API: its answers have the columns of their docstrings and notes, and it leaves the process as it is."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import offsetlake
from offsetlake import errors
from offsetlake.api import reader
from offsetlake.api.open_lake import OpenLake
from offsetlake.api.reader import in_memory, to_instant
from offsetlake.errors import BadRequest, LakeUnusable, OffsetlakeError
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql import answers
from offsetlake.lake.sql.answers import PartedAnswer
from offsetlake.pipeline.ingest.log_ends import record
from offsetlake.pipeline.spark import _defaults
from offsetlake.queries.answer_notes import noted, notes
from offsetlake.util.columns import is_time
from offsetlake.util.memory_limit import choose_allocators

SECOND = "2026-11-21T05:38:50"
QUESTIONS: dict[str, Callable[[OpenLake], pa.Table]] = {
    "offsets": lambda lake: lake.offsets(),
    "groups": lambda lake: lake.groups(),
    "history": lambda lake: lake.history("warehouse", "shipments", 0),
    "lag": lambda lake: lake.lag(),
    "lag of partitions": lambda lake: lake.lag(partitions=True),
    "diff": lambda lake: lake.diff("2026-11-21T05:38:48", SECOND),
    "transactions": lambda lake: lake.transactions(),
    "share": lambda lake: lake.share(batches=True),
    "alterations": lambda lake: lake.alterations(),
    "audit_events": lambda lake: lake.audit_events(),
    "tombstones": lambda lake: lake.tombstones(),
    "runs": lambda lake: lake.runs(),
}
"""Questions whose docstrings list the columns of their answers."""

IMPORT = """
import os, sys
before = dict(os.environ)
import offsetlake
loaded = {"pyarrow", "deltalake", "typer", "numpy"} & sys.modules.keys()
offsetlake.open
assert dict(os.environ) == before
print(sorted(loaded), dir(offsetlake) == offsetlake.__all__)
"""
ALLOCATOR = """
import os, sys
from offsetlake.cli.main import run
run(["--version"])
import pyarrow as pa
print(pa.default_memory_pool().backend_name, "_RJEM_MALLOC_CONF" in os.environ)
"""


@pytest.fixture(scope="module")
def lake(broker_lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> OpenLake:
    """That lake, with log end offsets of a topic."""
    folder = shutil.copytree(str(broker_lake.location), tmp_path_factory.mktemp("api") / "lake")
    record(Lake(folder), 1, [["orders", number, 0, 500, 1_795_239_540_000] for number in range(6)])
    return offsetlake.open(folder)


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_docstring_lists_the_columns_and_the_units_of_times(name: str, lake: OpenLake) -> None:
    text = " ".join((getattr(OpenLake, name.partition(" ")[0]).__doc__ or "").split())
    columns = QUESTIONS[name](lake).column_names
    assert [column for column in columns if not re.search(rf"\b{column}\b", text)] == []
    assert "ms" in text or not any(map(is_time, columns))


def test_a_question_prints_nothing_and_has_no_notes_if_nothing_is_missing(
    lake: OpenLake, capfd: pytest.CaptureFixture[str]
) -> None:
    assert [offsetlake.notes(ask(lake)) for name, ask in QUESTIONS.items() if name in ("history", "runs")] == [[], []]
    assert capfd.readouterr() == ("", "")


def test_a_time_of_the_future_is_in_the_notes(lake: OpenLake) -> None:
    (note,) = offsetlake.notes(lake.as_of("2099-01-01", "warehouse"))
    assert note.startswith("2099-01-01T00:00:00.000Z is in the future")


def test_an_answer_in_scratch_files_has_the_same_rows_and_notes(
    lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = lake.audit("changes")
    monkeypatch.setattr(answers, "MAX_ROWS_IN_MEMORY", 10)
    monkeypatch.setattr(reader, "MAX_ROWS_IN_MEMORY", 10)
    scanned = lake.scan_audit("changes")
    assert not isinstance(scanned, pa.Table)
    assert lake.audit("changes").equals(expected)
    assert notes(noted(scanned, ["", "a note"])) == ["a note"]


def test_a_sorted_answer_without_rows_is_an_empty_table() -> None:
    collected = PartedAnswer("a")
    collected.add(pa.table({"a": pa.array([], pa.int64())}).to_reader())
    answer = in_memory(noted(collected.answer(), ["a note"]))
    assert (answer.column_names, answer.num_rows, notes(answer)) == (["a"], 0, ["a note"])


def test_times() -> None:
    at = datetime(2026, 11, 21, 5, 38, 50, tzinfo=UTC)
    assert {to_instant(time) for time in (SECOND, at, 1795239530000)} == {1795239530000}
    with pytest.raises(BadRequest, match="requires a time zone"):
        to_instant(at.replace(tzinfo=None))


def test_a_lake_that_does_not_exist_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    with pytest.raises(LakeUnusable, match="no lake in"):
        offsetlake.open(tmp_path)


def test_a_lake_stays_open_if_the_working_folder_changes(
    broker_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lake").symlink_to(str(broker_lake.location))
    monkeypatch.chdir(tmp_path)
    opened = offsetlake.open("lake")
    monkeypatch.chdir("/")
    assert opened.count_offsets("warehouse") == 3


def test_importing_loads_little_and_sets_no_variable_of_the_environment() -> None:
    assert subprocess.check_output([sys.executable, "-c", IMPORT], text=True) == "[] True\n"


def test_commands_choose_the_allocators_of_this_process_and_its_children() -> None:
    assert subprocess.check_output([sys.executable, "-c", ALLOCATOR], text=True).splitlines()[1:] == ["system True"]


def test_executors_have_the_allocators_of_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for name in _defaults() if name.startswith("spark.executorEnv.")]
    variables = {name.removeprefix("spark.executorEnv."): _defaults()[name] for name in names}
    for variable in variables:
        monkeypatch.delenv(variable, raising=False)
    environment: dict[str, str] = {}
    monkeypatch.setattr("os.environ", environment)
    choose_allocators()
    assert environment == variables


def test_errors_are_exported() -> None:
    every = {
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, OffsetlakeError)
    }
    assert every - {*offsetlake.__all__} == {"FleetFailed"}  # of the command line
    assert all(getattr(offsetlake, name) is not None for name in offsetlake.__all__)
    with pytest.raises(AttributeError, match="no attribute 'opens'"):
        _ = offsetlake.opens
