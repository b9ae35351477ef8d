"""The memory and the CPU time of a process and its descendants."""

import os
import threading
from pathlib import Path

SAMPLE_INTERVAL_SECONDS = 0.05


class Memory(threading.Thread):
    """Samples the memory of a process and its descendants."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.peak_bytes, self.done = pid, 0, threading.Event()

    def run(self) -> None:
        """Sample until `done` is set."""
        while not self.done.wait(SAMPLE_INTERVAL_SECONDS):
            self.peak_bytes = max(self.peak_bytes, sum(proportional_bytes(pid) for pid in process_tree(self.pid)))


def process_tree(pid: int) -> list[int]:
    """Return the process and its descendants."""
    pids = [pid]
    for parent in pids:
        try:
            for task in Path(f"/proc/{parent}/task").iterdir():
                pids += map(int, (task / "children").read_text(encoding="ascii").split())
        except OSError:  # the process has ended
            continue
    return pids


def proportional_bytes(pid: int) -> int:
    """Return the proportional set size of a process, 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
