"""Mounts of NFS whose locks other machines do not see.

Linux sends flock of files on NFS to the server, unless a mount option keeps locks on this machine: see nfs(5), and for
the list of mounts proc_pid_mountinfo(5).
"""

import os
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")

_NFS = ("nfs", "nfs4")
_LOCAL_LOCKS = {"nolock", "local_lock=flock", "local_lock=all"}


def local_lock_option(folder: Path) -> str:
    """Return the mount option that keeps the locks of a folder on this machine; empty if there is none."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
        mount, _, filesystem = line.partition(" - ")
        kind, _, options = filesystem.split(" ", 2)
        if mount.split(" ")[2] == number and kind in _NFS:
            return min(_LOCAL_LOCKS.intersection(options.split(",")), default="")
    return ""
