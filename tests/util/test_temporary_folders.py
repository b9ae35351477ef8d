"""Temporary folders."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from offsetlake.util.temporary_folders import temporary_folder

PREFIX = "offsetlake-test-"
HOLDER = f"""
import sys
from offsetlake.util.temporary_folders import temporary_folder
with temporary_folder({PREFIX!r}) as folder:
    (folder / "copy").write_text("secret")
    print(folder, flush=True)
    sys.stdin.read()
"""


def make_old(folder: Path) -> None:
    os.utime(folder, (1, 1))


@pytest.fixture(autouse=True)
def _temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_folder_is_removed_after_the_block() -> None:
    with temporary_folder(PREFIX) as folder:
        (folder / "copy").write_text("x")
    assert not folder.exists()


def test_folder_in_use_is_kept_and_that_of_a_killed_process_is_removed() -> None:
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        folder = Path(holder.stdout.readline().strip())
        make_old(folder)
        with temporary_folder(PREFIX):
            assert (folder / "copy").exists()
        holder.send_signal(signal.SIGKILL)
    assert folder.exists()
    with temporary_folder(PREFIX):
        assert not folder.exists()


def test_young_folder_is_kept(tmp_path: Path) -> None:
    """Its process may not have locked it yet."""
    young = tmp_path / f"{PREFIX}young"
    young.mkdir()
    with temporary_folder(PREFIX):
        assert young.exists()


def test_what_is_not_a_folder_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    link = tmp_path / f"{PREFIX}link"
    link.symlink_to(target)
    for path in (target, link):
        os.utime(path, (1, 1))
    with temporary_folder(PREFIX):
        assert target.exists()
        assert link.exists()
