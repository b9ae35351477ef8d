"""An import that is killed by SIGKILL before a write, and run again, has the result of one that was never killed."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from offsetlake.lake.lake import Lake
from support.e2e.lakes import rows
from support.zookeeper.ensemble import Ensemble, put_offsets

pytestmark = [pytest.mark.slow, pytest.mark.long]

TESTS = Path(__file__).parents[1]
KINDS = ("append", "fdatasync", "commit", "close data file", "unlink")


def import_killed(folder: Path, url: str, number: int) -> tuple[int, list[str]]:
    """Run an import in a folder, killed before this write; return its exit code and the kinds of its writes."""
    report = folder.parent / "report"
    report.unlink(missing_ok=True)
    command = ["import", url, "--lake", "lake", "--log", "log", "--execute"]
    done = subprocess.run(
        [sys.executable, "-m", "support.zookeeper.killed", str(number), str(report), *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        check=False,
    )
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr.decode()
    return done.returncode, report.read_text().split("\n")[:-1]


def offsets(folder: Path) -> dict[tuple[str, str, int], int]:
    found = rows(Lake.open(folder / "lake"), "offsets")
    return {(row["group_id"], row["topic"], row["partition"]): row["committed_offset"] for row in found}


def test_import_killed_before_a_write_and_run_again(
    ensemble: Ensemble, chroot: str, client: KazooClient, lake: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for group in ("billing", "new-1", "new-2"):
        put_offsets(client, group, {("orders", str(number)): str(number).encode() for number in range(5)})
    folder = tmp_path_factory.mktemp("killed")

    def copy(name: str) -> Path:
        shutil.copytree(lake.parent / "lake", folder / name / "lake")
        shutil.copytree(lake.parent / "log", folder / name / "log")
        return folder / name

    never = copy("never")
    code, writes = import_killed(never, ensemble.url(chroot), 0)
    assert (code, len(writes) > 20, set(KINDS) - set(writes)) == (0, True, set())
    expected = offsets(never)
    assert expected.items() >= {("new-2", "orders", 4): 4, ("billing", "orders", 0): 0}.items()
    first = {writes.index(kind) + 1 for kind in KINDS}
    last = {len(writes) - writes[::-1].index(kind) for kind in KINDS}
    for number in sorted(first | last):
        killed = copy(str(number))
        assert import_killed(killed, ensemble.url(chroot), number)[0] == -signal.SIGKILL
        assert import_killed(killed, ensemble.url(chroot), 0)[0] == 0
        assert offsets(killed) == expected
