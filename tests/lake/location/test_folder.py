"""Lakes in folders of network file systems."""

import os
from pathlib import Path

import pytest

from offsetlake.errors import LakeUnusable
from offsetlake.lake.lake import Lake
from offsetlake.lake.location import mounts
from offsetlake.lake.location.folder import Folder

NFS_OPTIONS = "rw,vers=3,rsize=1048576,namlen=255,hard,proto=tcp,timeo=600,mountaddr=10.0.0.5"


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that replaces the list of mounts."""
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "mountinfo")
    return tmp_path / "mountinfo"


def write_mounts(file: Path, kind: str, options: str) -> None:
    """Write a list of mounts in which the folder of this file has another kind of file system."""
    device = file.parent.stat().st_dev
    file.write_text(
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        f"90 27 999:9 / /mnt/other rw - nfs nas:/other {NFS_OPTIONS},nolock,local_lock=all\n"
        f"91 27 {os.major(device)}:{os.minor(device)} / /mnt/my\\040lakes rw shared:7 - {kind} nas:/l {options}\n",
        encoding="utf-8",
    )


@pytest.mark.parametrize("kind", ["nfs", "nfs4"])
@pytest.mark.parametrize("option", ["nolock", "local_lock=flock", "local_lock=all"])
def test_lake_on_nfs_whose_locks_are_local_is_refused(kind: str, option: str, mounted: Path, tmp_path: Path) -> None:
    write_mounts(mounted, kind, f"{NFS_OPTIONS},{option},addr=10.0.0.5")
    with pytest.raises(LakeUnusable, match=rf"lake is on NFS, mounted with {option}: jobs on other machines"):
        Lake.create(tmp_path / "lake")
    assert not Folder(tmp_path / "lake").names()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("nfs", f"{NFS_OPTIONS},local_lock=none,addr=10.0.0.5"),
        ("nfs", f"{NFS_OPTIONS},local_lock=posix,addr=10.0.0.5"),
        ("nfs4", "rw,vers=4.2,hard,proto=tcp,clientaddr=10.0.0.7,local_lock=none,addr=10.0.0.5"),
        ("ext4", "rw,nolock"),
    ],
)
def test_lake_whose_locks_are_shared_is_locked(kind: str, options: str, mounted: Path, tmp_path: Path) -> None:
    write_mounts(mounted, kind, options)
    with Folder(tmp_path).lock("ingest", lambda _: None):
        assert (tmp_path / "lock").read_text(encoding="utf-8").startswith("ingest (process ")
