"""Lakes are created, opened, locked and refused."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from offsetlake.errors import LakeBusy, LakeUnusable
from offsetlake.lake.definitions import LAKE_VERSION, TABLES
from offsetlake.lake.lake import Lake
from offsetlake.lake.location import folder as folder_module
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, rows
from support.oracle.encoders import offset_key, offset_value
from support.oracle.log_writer import Batch, Record, write_partition

pytestmark = pytest.mark.slow

HOLD = """
import sys, time
from pathlib import Path
from offsetlake.lake.lake import Lake
with Lake.create(Path(sys.argv[1])).lock("holder"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def test_new_lake_has_all_tables_empty(folder: Path) -> None:
    lake = Lake.create(folder)
    assert {table: lake.count(table) for table in TABLES} == dict.fromkeys(TABLES, 0)
    assert Lake.open(folder).location == lake.location


def test_missing_table_is_named(folder: Path) -> None:
    lake = Lake.create(folder)
    shutil.rmtree(lake.table_location("offsets").path)
    with pytest.raises(
        LakeUnusable, match=f"table offsets of the lake {lake.location.path} is missing: run `offsetlake rebuild"
    ):
        lake.count("offsets")


def test_folder_without_lake_is_refused(folder: Path) -> None:
    with pytest.raises(LakeUnusable, match="no lake in"):
        Lake.open(folder)


def test_lake_of_a_newer_version_is_refused(folder: Path) -> None:
    Lake.create(folder)
    (folder / "offsetlake.json").write_text(json.dumps({"version": LAKE_VERSION + 1}))
    for opening in (Lake.open, Lake.create, Lake.check):
        with pytest.raises(LakeUnusable, match=r"newer offsetlake.*upgrade"):
            opening(folder)


def test_folder_with_other_files_is_refused(folder: Path) -> None:
    folder.mkdir()
    (folder / "thesis.tex").touch()
    for opening in (Lake.create, Lake.check):
        with pytest.raises(LakeUnusable, match="is not empty and does not contain an offsetlake lake"):
            opening(folder)
    assert (folder / "thesis.tex").exists()


def test_incomplete_lake_is_completed(folder: Path) -> None:
    Lake.create(folder)
    (folder / "offsetlake.json").unlink()
    for file in sorted((folder / TABLES[-1]).rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    Lake.check(folder)
    assert Lake.create(folder).count(TABLES[-1]) == 0


def test_two_programs_can_create_a_lake_concurrently(folder: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(folder)]
    makers = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for _ in range(2)]
    for maker in makers:
        assert maker.wait() == 0
    assert Lake.open(folder).count("offsets") == 0


def test_file_is_replaced_atomically(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake.create(folder)
    lake.files.write("plan-ingest.json", {"run_id": 1})

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        lake.files.write("plan-ingest.json", {"run_id": 2})
    assert lake.files.read("plan-ingest.json") == {"run_id": 1}


def test_full_disk_is_reported_and_loses_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = offset_value(3, 7, commit_timestamp=1)
    write_partition(tmp_path / "log", 0, [Batch(records=(Record(0, 1, offset_key("g", "t", 0), value),))])
    lake = Lake.create(folder)
    real, left = os.fsync, [2]

    def filling(handle: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", filling)
    with pytest.raises(LakeUnusable, match=r"no space left.*free some and run again"):
        cycle(InProcess(), lake, tmp_path / "log")
    monkeypatch.setattr(os, "fsync", real)
    cycle(InProcess(), lake, tmp_path / "log")
    assert [row["committed_offset"] for row in rows(lake, "offsets")] == [7]
    assert lake.count("offset_commits") == 1


def _holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_second_job_waits_and_names_the_first(folder: Path) -> None:
    lake, said = Lake.create(folder), []
    with _holder(folder) as holder:

        def let_go(text: str) -> None:
            said.append(text)
            assert holder.stdin is not None
            holder.stdin.write("\n")
            holder.stdin.flush()

        with lake.lock("second", let_go):
            pass
        assert said == [f"waiting for holder (process {holder.pid}), which writes to {folder}"]


def test_job_that_waits_too_long_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "WAIT_SECONDS", 0)
    lake = Lake.create(folder)
    with _holder(folder) as holder:
        with pytest.raises(LakeBusy, match="holder"), lake.lock("second"):
            pytest.fail("two jobs hold one lake")
        holder.communicate("\n")


def test_lock_of_a_killed_job_is_released(folder: Path) -> None:
    lake, said = Lake.create(folder), []
    with _holder(folder) as holder:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        with lake.lock("second", said.append):
            assert said == [], "it does not wait"
