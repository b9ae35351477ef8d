"""What a run reports as done survives a power failure: everything that was not synced to the disk before is lost."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from offsetlake.lake.definitions import TABLES, definition
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.compact.rebuild import rebuild
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, plan_expiry, state, upkeep

pytestmark = pytest.mark.slow

LOG = Path(__file__).parents[1] / "fixtures" / "broker-log"


class Disk:
    """What a disk contains of the files below a folder: the content and the names at the last fsync of each."""

    def __init__(self) -> None:
        self.contents: dict[int, bytes] = {}
        self.names: dict[int, dict[str, int]] = {}

    def synced(self, handle: int) -> None:
        """Record an fsync."""
        path = Path(f"/proc/self/fd/{handle}").readlink()
        number = os.fstat(handle).st_ino
        if path.is_dir():
            self.names[number] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self.contents[number] = path.read_bytes()

    def restore(self, number: int, folder: Path) -> Path:
        """Write what is left of a folder after a power failure to another one."""
        folder.mkdir()
        for name, inner in self.names.get(number, {}).items():
            if inner in self.names:
                self.restore(inner, folder / name)
            elif name != "lock":
                (folder / name).write_bytes(self.contents.get(inner, b""))
        return folder


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    found, fsync = Disk(), os.fsync

    def recorded(handle: int) -> None:
        fsync(handle)
        found.synced(handle)

    monkeypatch.setattr(os, "fsync", recorded)
    return found


@pytest.mark.long
def test_finished_runs_survive_a_power_failure(disk: Disk, tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    number = (tmp_path / "lake").stat().st_ino
    session = InProcess()

    def check(name: str) -> None:
        left = disk.restore(number, tmp_path / name)
        assert state(Lake.open(left)) == state(lake)
        assert Lake.open(left).query("SELECT * FROM runs", "runs").num_rows == lake.count("runs")

    check("created")
    cycle(session, lake, LOG)
    check("compacted")
    plan_expiry(session, lake)
    check("planned")
    rebuild(lambda: session, lake, lambda _text: None, ["offsets", "groups"])  # type: ignore[arg-type, return-value]
    check("rebuilt")
    for _ in range(4):
        cycle(session, lake, LOG)
    upkeep(lake)
    check("maintained")


def test_creation_that_a_power_failure_interrupted_is_completed(tmp_path: Path) -> None:
    """The entries of Delta logs are synced late during the creation, so that any of them can be empty or torn."""
    lake = Lake.create(tmp_path / "lake")
    for number, table in enumerate(TABLES):
        entry = sorted((tmp_path / "lake" / table / "_delta_log").iterdir())[-(number % 2)]
        entry.write_bytes(entry.read_bytes()[: number * 100])
    (tmp_path / "lake" / "offsetlake.json").unlink()
    lake = Lake.create(tmp_path / "lake")
    for table in TABLES:
        names = {f"delta.constraints.{check['name']}" for check in definition(table).checks}
        assert names <= lake.delta_table(table).metadata().configuration.keys()
