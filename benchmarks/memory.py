"""Peak memory and time of every command over 20 M commits, and of the gate over 1 M and 20 M; to benchmarks/memory.md.

python benchmarks/memory.py                     about half an hour on two cores
python benchmarks/memory.py --scale 0.1         a tenth of the commits
python benchmarks/memory.py --folder DIR        keeps the lakes there, and uses those that are there

Each command runs in a process of its own. Its peak is the high-water mark of resident memory (VmHWM) of the largest
process of its process tree; the JVM of Spark counts.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

from offsetlake.lake.views import views  # noqa: E402 - the paths come first
from oracle.bulk import write_bulk_log  # noqa: E402
from run import _append  # noqa: E402

GROUPS, NEW = 20_000, 100_000
INTERVAL_SECONDS = 0.02
COMMAND = [sys.executable, "-m", "offsetlake.cli"]
INSTANT, LATER = "2023-12-01T00:00", "2023-12-02T00:00"
SQL = (
    "SELECT group_id, count(*) AS commits FROM offset_commits GROUP BY group_id ORDER BY commits DESC LIMIT 20",
    "SELECT group_id, count(*) AS steps FROM commit_steps GROUP BY group_id ORDER BY steps DESC LIMIT 20",
    "SELECT a.group_id FROM offset_commits AS a JOIN offset_commits AS b ON a.committed_offset = b.committed_offset",
)


def process_tree(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        try:
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text(encoding="ascii").split())
        except OSError:  # it has ended meanwhile
            continue
    return found


def high_water_kb(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), 0)


def measured(*arguments: str) -> tuple[float, int, int, str]:
    """Seconds, peak in MB, exit code and last line of standard error of a command."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "lib")}
    began, peak = time.perf_counter(), 0
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=errors, env=environment) as process,
    ):
        while process.poll() is None:
            peak = max(peak, *map(high_water_kb, process_tree(process.pid)))
            time.sleep(INTERVAL_SECONDS)
        taken = time.perf_counter() - began
        errors.seek(0)
        last = (errors.read().splitlines() or [""])[-1]
    return taken, round(peak * 1024 / 1e6), process.returncode, last


def row(what: str, *arguments: str) -> str:
    taken, peak, code, last = measured(*arguments)
    outcome = "" if code == 0 else f"exit code {code}: {last}"
    line = f"| {what} | {taken:.1f} s | {peak} MB | {outcome} |"
    print(line, file=sys.stderr, flush=True)
    return line


def made(folder: Path, commits: int) -> Iterator[str]:
    """Make a lake of so many commits, and 100,000 more of which each gate has to be asked; rows of its jobs."""
    log, lake = folder / "log", str(folder / "lake")
    write_bulk_log(log, commits, groups=GROUPS, topics=10, partitions=5)
    size = f"{commits / 1e6:g} M commits"
    yield row(f"`ingest` of {size}", "ingest", "--lake", lake, "--log", str(log))
    yield row(f"`compact` of {size}", "compact", "--lake", lake)
    yield row(f"`check --suite after_compact`, {size} new", "check", "--suite", "after_compact", "--lake", lake)
    write_bulk_log(folder / "more", NEW, groups=GROUPS, topics=10, partitions=5, seed=7)
    _append(log, folder / "more")
    shutil.rmtree(folder / "more")
    yield row(f"`ingest` of {NEW:,} more", "ingest", "--lake", lake, "--log", str(log))
    yield row(f"`compact` of {NEW:,} more", "compact", "--lake", lake)
    shutil.rmtree(log)


def gate(folder: Path, commits: int) -> str:
    what = f"`check --gate --suite after_compact`, {NEW:,} new of {commits / 1e6:g} M"
    return row(what, "check", "--gate", "--suite", "after_compact", "--lake", str(folder / "lake"))


def questions(lake: str) -> Iterator[str]:
    yield row("`check --full`, all suites", "check", "--full", "--lake", lake)
    yield row("`offsets --as-of`", "offsets", "--as-of", INSTANT, "--limit", "20", "--lake", lake)
    yield row("`offsets --as-of`, all rows as CSV", "offsets", "--as-of", INSTANT, "--format", "csv", "--lake", lake)
    yield row("`diff`", "diff", "--from", INSTANT, "--to", LATER, "--limit", "20", "--lake", lake)
    yield row("`report`", "report", "--to", f"{lake}/../report.html", "--lake", lake)
    for name in sorted(views()):
        yield row(f"`audit {name}`", "audit", name, "--limit", "20", "--lake", lake)
    for statement in SQL:
        yield row(f"`sql '{statement}'`", "sql", statement, "--lake", lake)
    yield row("`offsets`, all rows as CSV", "offsets", "--format", "csv", "--lake", lake)
    yield row("`groups`", "groups", "--lake", lake)
    of_key = ("--group", "group-00001", "--topic", "topic-1", "--partition", "1")
    yield row("`history`", "history", *of_key, "--lake", lake)
    yield row("`tombstones`", "tombstones", "--lake", lake)
    yield row("`transactions`", "transactions", "--lake", lake)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--to", type=Path, default=ROOT / "benchmarks" / "memory.md")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        for commits in (int(1_000_000 * arguments.scale), int(20_000_000 * arguments.scale)):
            of_size = folder / f"{commits / 1e6:g}m"
            if not of_size.exists():
                rows += made(of_size, commits)
            rows.append(gate(of_size, commits))
        rows += questions(str(of_size / "lake"))
    table = "\n".join(["| command | time | peak | |", "|---|---|---|---|", *rows])
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    text = (
        f"# Memory\n\n`python benchmarks/memory.py`, {machine}: {commits / 1e6:g} M commits of {GROUPS:,} groups, 1,000,000 "
        "offsets. The peak is that of the largest process.\n\n"
        f"{table}\n"
    )
    print(text)
    arguments.to.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
