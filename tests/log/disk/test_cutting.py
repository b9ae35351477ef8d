"""Which segments of a log can go, and how they go."""

import os
from pathlib import Path

import pytest

from offsetlake.errors import LogUnavailable
from offsetlake.log.disk.cutting import delete, plan_cut
from offsetlake.log.disk.folder import describe
from offsetlake.log.positions import OffsetRange
from support.log.made_folders import PARTITION, batch, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Segments from 0, 6, 9 and 12 on; the end is 15."""
    write(tmp_path, [batch(0), batch(3)], [batch(6)], [batch(9)], [batch(12)])
    return tmp_path


@pytest.mark.parametrize(
    ("needed", "going"), [(0, []), (5, []), (6, [0]), (8, [0]), (9, [0, 6]), (12, [0, 6, 9]), (10**9, [0, 6, 9])]
)
def test_obsolete_segments_exclude_active_segment(folder: Path, needed: int, going: list[int]) -> None:
    before = {path: path.stat().st_size for path in folder.rglob("*.log")}
    cut = plan_cut(folder, PARTITION, needed)
    assert [segment.base_offset for segment in cut.obsolete] == going
    assert cut.remaining == 4 - len(going)
    assert {path: path.stat().st_size for path in folder.rglob("*.log")} == before, "a plan deletes nothing"
    delete(cut)
    assert cut.size == sum(size for path, size in before.items() if not path.exists())
    assert describe(folder).ranges == {PARTITION: OffsetRange([0, 6, 9, 12][len(going)], 15)}
    assert plan_cut(folder, PARTITION, needed).obsolete == ()


def test_index_files_are_deleted_with_segment(folder: Path) -> None:
    partition = folder / str(PARTITION)
    names = (".index", ".timeindex", ".txnindex", ".snapshot")
    beside = [partition / f"{base:020d}{name}" for base in (0, 6) for name in names]
    for path in [*beside, partition / "leader-epoch-checkpoint"]:
        path.write_bytes(b"12345")
    cut = plan_cut(folder, PARTITION, 6)
    assert cut.size == (partition / f"{0:020d}.log").stat().st_size + 20
    delete(cut)
    left = {path.name for path in partition.iterdir() if path.suffix != ".log"}
    assert left == {path.name for path in beside[4:]} | {"leader-epoch-checkpoint"}


def test_each_deletion_is_durable_before_the_next(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / str(PARTITION) / f"{0:020d}.index").touch()
    done: list[str] = []
    unlink, fsync = os.unlink, os.fsync
    monkeypatch.setattr(os, "unlink", lambda path: (done.append(Path(path).name[-8:]), unlink(path)))
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("fsync"), fsync(handle)))
    delete(plan_cut(folder, PARTITION, 9))
    assert done == ["00.index", "0000.log", "fsync", "0006.log", "fsync"]


def test_segment_that_cannot_be_deleted_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_path: object) -> None:
        raise PermissionError(13, "Permission denied")

    cut = plan_cut(folder, PARTITION, 6)
    monkeypatch.setattr(os, "unlink", refused)
    with pytest.raises(
        LogUnavailable, match=r"00000\.log cannot be deleted: Permission denied\. .* run the command again"
    ):
        delete(cut)
