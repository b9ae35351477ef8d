"""Small files of a lake with other content than the program wrote: named, with what to do, or written again."""

import json
import shutil
from pathlib import Path

import pytest

from offsetlake.lake.delta.commits import app_id
from offsetlake.lake.lake import Lake
from offsetlake.pipeline import runner
from support.command_line import Run
from support.e2e.in_process import NoSpark
from support.long_cases import long_cases

pytestmark = pytest.mark.slow

LOG = Path(__file__).parents[1] / "fixtures" / "broker-log"
DAMAGED = [b"", b'{"version": 9', b"[]", b"null", b"\xff\xfe", b'{"version": "x"}']


@pytest.fixture
def folder(broker_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(runner, "LazySession", NoSpark)
    return Path(shutil.copytree(broker_lake.location.path, tmp_path / "lake"))


@pytest.mark.parametrize("content", [*DAMAGED[:2], *long_cases(DAMAGED[2:])])
def test_damaged_file_is_named(run: Run, folder: Path, content: bytes) -> None:
    whole = {path.name: path.read_bytes() for path in folder.glob("*.json")}
    for name in ("offsetlake.json", "verified.json", "rejections.json", "plan-ingest.json", "plan-compact.json"):
        (folder / name).write_bytes(content)
        exit_code, _, errors = run("expire", "--lake", str(folder))
        if name == "rejections.json" and content.startswith(b'{"version": "'):  # no column of it
            assert exit_code == 0, errors
        else:
            assert exit_code == 6, (name, errors)
            assert f"{folder}/{name}" in errors
            assert "remove it" in errors or "restore" in errors
        (folder / name).unlink()
        if name in whole:
            (folder / name).write_bytes(whole[name])
    assert run("check", "--full", "--lake", str(folder))[0] == 0


@pytest.mark.parametrize("content", DAMAGED)
def test_file_that_only_saves_work_is_written_again(run: Run, folder: Path, content: bytes) -> None:
    (folder / "evaluated.json").write_bytes(content)
    assert run("expire", "--lake", str(folder))[0] == 0
    assert json.loads((folder / "evaluated.json").read_bytes())["versions"]


def test_missing_marker_is_not_an_empty_folder(run: Run, folder: Path) -> None:
    (folder / "offsetlake.json").unlink()
    exit_code, _, errors = run("offsets", "--lake", str(folder))
    assert exit_code == 6
    assert "offsetlake.json of the lake is missing" in errors
    (folder / "offsetlake.json").write_text('{"version": 1}')
    assert run("expire", "--lake", str(folder))[0] == 0


def test_plan_is_not_removed_if_its_run_has_written(run: Run, folder: Path) -> None:
    """A new run of the job would take its number, and skip the tables that have it."""
    lake = Lake.open(folder)
    for job, table, remedy in (
        ("compact", "offsets", "run `offsetlake rebuild` next"),
        ("ingest", "offset_commits", "read the log into a new lake"),
    ):
        with lake.lock("test"), lake.open_tables() as tables:
            tables.commit(table, [], lake.properties(job, lake.count("runs") + 1))
        assert lake.delta_table(table).transaction_version(app_id(job)) == lake.count("runs") + 1
        (folder / f"plan-{job}.json").write_bytes(b"{")
        log = ["--log", str(LOG)] if job == "ingest" else []
        exit_code, _, errors = run(job, "--lake", str(folder), *log)
        assert exit_code == 6, errors
        assert f"its run has written to {table}" in errors
        assert remedy in errors
        (folder / f"plan-{job}.json").unlink()
