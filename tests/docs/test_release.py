"""`make release`, and the hook before commits, in a copy of the checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.documents import ROOT

BIN = Path(sys.executable).parent
COPIED = ("lib", "schemas", "conf", ".ci", "Makefile", "pyproject.toml", "README.md", "LICENSE", ".gitignore")
Release = Callable[[], subprocess.CompletedProcess[str]]


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Releaser", "-c", "user.email=releaser@example.org")
    done = subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository with a copy of what a release needs, and an unreleased version 9.8.7."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    project = folder / "pyproject.toml"
    project.write_text(re.sub('^version = ".*"', 'version = "9.8.7"', project.read_text(), flags=re.MULTILINE))
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## 9.8.7 (unreleased)\nNews.\n\n## 9.8.6 (2026-01-01)\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "First")
    return folder


@pytest.fixture
def release(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Releaser")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "releaser@example.org")
    environment = BIN.parent
    command = ["make", "-C", str(checkout), "release", f"VENV={environment}", "-o", f"{environment}/.dev"]
    return lambda: subprocess.run(command, check=False, capture_output=True, text=True)


def assert_refused(checkout: Path, release: Release, reason: str) -> None:
    before = git(checkout, "show-ref"), git(checkout, "status", "--porcelain")
    done = release()
    assert done.returncode
    assert reason in done.stderr
    assert (git(checkout, "show-ref"), git(checkout, "status", "--porcelain")) == before
    assert not [*(checkout / "dist").glob("*")]


def test_a_release_needs_a_clean_tree_a_new_version_and_its_heading(checkout: Path, release: Release) -> None:
    (checkout / "new.txt").touch()
    assert_refused(checkout, release, "uncommitted changes")
    (checkout / "new.txt").unlink()

    git(checkout, "tag", "v9.8.7")
    assert_refused(checkout, release, "the tag v9.8.7 exists")
    git(checkout, "tag", "-d", "v9.8.7")

    (checkout / "CHANGELOG.md").write_text("# Changelog\n")
    git(checkout, "commit", "-q", "-a", "-m", "No heading")
    assert_refused(checkout, release, "no heading '## 9.8.7 (unreleased)'")


@pytest.mark.slow
def test_a_wheel_that_cannot_be_built_leaves_nothing(checkout: Path, release: Release) -> None:
    git(checkout, "rm", "-q", "-r", "schemas")
    git(checkout, "commit", "-q", "-m", "Without what the wheel includes")
    assert_refused(checkout, release, "schemas")


@pytest.mark.long
def test_a_release_has_a_wheel_a_bill_of_materials_and_a_tag(checkout: Path, release: Release) -> None:
    done = release()
    assert done.returncode == 0, done.stderr
    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "rev-parse", "v9.8.7^{commit}") == git(checkout, "rev-parse", "HEAD")
    assert git(checkout, "show", "--format=%s", "--name-only").split() == ["Release", "9.8.7", "CHANGELOG.md"]
    changelog = (checkout / "CHANGELOG.md").read_text()
    assert f"## 9.8.7 ({datetime.now(UTC):%Y-%m-%d})\nNews.\n\n## 9.8.6 (2026-01-01)\n" in changelog
    wheel, bill = (
        checkout / "dist" / "offsetlake-9.8.7-py3-none-any.whl",
        checkout / "dist" / "offsetlake-9.8.7.cdx.json",
    )
    assert wheel.stat().st_size > 500_000
    content = json.loads(bill.read_text())
    component = content["metadata"]["component"]
    assert (content["bomFormat"], component["name"], component["version"]) == ("CycloneDX", "offsetlake", "9.8.7")
    lock = (checkout / "conf" / "requirements" / "runtime.txt").read_text()
    locked = {*re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", lock, re.MULTILINE)}
    assert {(part["name"], part["version"]) for part in content["components"]} == locked
    assert all(part["externalReferences"][0]["hashes"] for part in content["components"])


def test_the_hook_before_commits_runs_make_check_and_downloads_nothing(checkout: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / ".pre-commit-config.yaml", checkout)
    (checkout / "Makefile").write_text("check:\n\t@echo checked >>../checks\n")
    git(checkout, "add", "-A")
    environment = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "hooks")}
    subprocess.run([BIN / "pre-commit", "run"], cwd=checkout, env=environment, check=True, capture_output=True)
    assert (tmp_path / "checks").read_text() == "checked\n"
    assert [path.name for path in (tmp_path / "hooks").iterdir() if path.is_dir()] == []
