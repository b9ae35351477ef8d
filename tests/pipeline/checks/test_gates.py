"""A failed gate holds back later history until the fault is repaired or accepted."""

import json
import shutil
from pathlib import Path

import pytest

from offsetlake.lake.delta.commits import ours
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.emit.job import emit
from offsetlake.pipeline.expire.job import expire
from offsetlake.rules.policy import Override, RetentionPolicy
from support.command_line import Run
from support.e2e.in_process import InProcess
from support.e2e.lakes import LATER, cycle
from support.lakes import new_lake

pytestmark = pytest.mark.slow

BROKER_LOG = Path(__file__).parents[2] / "fixtures" / "broker-log"
FAR = 1_000_000  # a log offset behind all there are
OUR_FAULT = ours("fault", 1)  # what others change is refused before any check
OUT_OF_RANGE = "each record in history is in the range of the log that its ingest has read"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with a marker where the log has none, in the folder the command takes where none is named."""
    shutil.copytree(BROKER_LOG, tmp_path / "log", ignore=shutil.ignore_patterns("meta.properties"))
    lake = new_lake(tmp_path / "lake")
    cycle(InProcess(), lake, tmp_path / "log")
    for table in ("transaction_markers", "group_records"):
        lake.delta_table(table).alter.set_table_properties({"delta.appendOnly": "false"})
    move_markers(lake, FAR)
    return lake


def move_markers(lake: Lake, by: int) -> None:
    far = "log_offset >= 1000000" if by < 0 else "TRUE"
    updates = {"log_offset": f"log_offset + {by}"}
    lake.delta_table("transaction_markers").update(updates=updates, predicate=far, commit_properties=OUR_FAULT)


def quiet(_text: str) -> None:
    pass


def more(lake: Lake) -> None:
    """One more cycle, with something new in the log."""
    log = lake.location.path.parent / "log"
    expire(InProcess, lake, RetentionPolicy(LATER, (Override("billing", "*", 0),)), LATER, quiet)
    emit(lake, LogAddress(folder=log), quiet)
    cycle(InProcess(), lake, log)


def failed(run: Run, *arguments: str) -> list[str]:
    code, out, err = run("check", "--suite", "after_compact", "--format", "json", *arguments)
    broken = [row["expectation"] for line in out.splitlines() if not (row := json.loads(line))["success"]]
    assert code == (9 if broken else 0), err
    return broken


@pytest.mark.long
def test_failed_history_is_checked_again_until_it_is_repaired(run: Run, lake: Lake) -> None:
    before = failed(run, "--gate")
    assert OUT_OF_RANGE in before
    more(lake)
    assert OUT_OF_RANGE not in failed(run), "the newest compaction is without fault"
    assert OUT_OF_RANGE in failed(run, "--gate")
    assert OUT_OF_RANGE in failed(run, "--gate"), "and again"
    move_markers(lake, -FAR)
    assert failed(run, "--gate") == []
    move_markers(lake, FAR)
    assert OUT_OF_RANGE not in failed(run, "--gate"), "what passed is not asked of again"


@pytest.mark.long
def test_accepted_history_passes_and_later_history_is_checked(run: Run, lake: Lake) -> None:
    assert OUT_OF_RANGE in failed(run, "--gate")
    code, _, err = run("check", "--accept", "--suite", "after_compact")
    assert (code, err) == (0, "Accepted what is compacted so far: after_compact\n")
    assert OUT_OF_RANGE not in failed(run, "--gate")
    move_markers(lake, -FAR)
    more(lake)
    lake.delta_table("group_records").update(
        updates={"log_offset": "log_offset + 1000000"}, commit_properties=OUR_FAULT
    )
    assert OUT_OF_RANGE in failed(run, "--gate"), "of what came behind it, all is asked"


def test_accept_checks_nothing(run: Run, lake: Lake) -> None:
    code, _, err = run("check", "--accept", "--gate")
    assert (code, err) == (
        2,
        "error: --accept checks nothing: it can be combined with --suite only.\n",
    )
