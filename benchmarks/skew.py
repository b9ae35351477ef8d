"""`compact` of a log of which one log partition has nine tenths of all commits; writes benchmarks/results/skew.md.

python benchmarks/skew.py                      20 M commits, 3 GB of disk
python benchmarks/skew.py --commits 8000000

Each measurement is a process of its own: the compaction without a division by groups, as it was before, and with it.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

from offsetlake.lake.lake import Lake  # noqa: E402 - sys.path is set above
from offsetlake.log.address import LogAddress  # noqa: E402
from offsetlake.pipeline.compact import division  # noqa: E402
from offsetlake.pipeline.compact.job import compact  # noqa: E402
from offsetlake.pipeline.ingest.job import ingest  # noqa: E402
from offsetlake.pipeline.parallel import distribute  # noqa: E402
from offsetlake.pipeline.spark import build_session  # noqa: E402
from run import ignore_progress  # noqa: E402
from support.oracle.bulk import write_bulk_log  # noqa: E402

LARGE_PARTITION = "__consumer_offsets-50"
PROPERTIES = {"spark.master": "local[2]", "spark.driver.memory": "1g"}
UNDIVIDED = 1 << 62


def write_skewed_log(folder: Path, commits: int, groups: int) -> None:
    """Write nine tenths of the commits to one log partition, and the others to fifty."""
    shape = {"topics": 10, "partitions": 5}
    large, small = folder / "large", folder / "log"
    write_bulk_log(large, commits * 9 // 10, groups=groups * 9 // 10, log_partitions=1, seed=1, **shape)
    write_bulk_log(small, commits // 10, groups=groups // 10, seed=2, **shape)
    (large / "__consumer_offsets-0").rename(small / LARGE_PARTITION)


def peak_memory() -> int:
    """Return the peak resident memory of this process in KiB; workers do not find the module `run`."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def measure(lake_path: Path, *, divided: bool) -> None:
    """Compact, and print the seconds, the peak memory of the largest Python worker in KiB, and the number of keys."""
    division.MAX_TASK_ROWS = division.TASK_ROWS  # divide on two cores, too
    if not divided:
        division.TASK_ROWS = division.MAX_TASK_ROWS = UNDIVIDED
    spark = build_session("skew", PROPERTIES)
    distribute(spark, abs, range(2))  # start the workers
    lake = Lake.create(lake_path)
    start = time.perf_counter()
    compact(lambda: spark, lake, ignore_progress)
    seconds = time.perf_counter() - start
    memory = max(distribute(spark, lambda _: peak_memory(), range(8)))
    print(json.dumps({"seconds": seconds, "memory": memory, "keys": lake.count("offsets")}))
    spark.stop()


def child(*arguments: str | Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, check=True, text=True)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def row_of(commits: int, groups: int) -> str:
    """Return the row of the table for one log."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_skewed_log(folder, commits, groups)
        spark = build_session("skew", PROPERTIES)
        ingest(lambda: spark, Lake.create(folder / "lake"), LogAddress(folder=folder / "log"), ignore_progress)
        spark.stop()
        shutil.rmtree(folder / "log")
        shutil.copytree(folder / "lake", folder / "again")
        before, after = child("--undivided", folder / "lake"), child("--divided", folder / "again")
    cells = [f"{value['seconds']:.1f} s, {value['memory'] / 1024:.0f} MB" for value in (before, after)]
    assert before["keys"] == after["keys"]
    description = f"{commits / 1e6:g} M commits over {int(after['keys']):,} keys"
    row = f"| {description} | {' | '.join(cells)} | {before['seconds'] / after['seconds']:.2f} times as fast |"
    print(row, file=sys.stderr, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=20_000_000)
    parser.add_argument("--undivided", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--divided", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if lake := arguments.divided or arguments.undivided:
        measure(lake, divided=bool(arguments.divided))
        return
    commits = arguments.commits
    rows = [row_of(commits, groups) for groups in (commits // 1_000, commits // 50)]
    head = ["| log | undivided | divided by groups | ratio |", "|---|---|---|---|"]
    text = "\n".join([*head, *rows]) + "\n"
    print(text)
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    title = "# `compact` of a log partition with 90 % of all commits\n\n"
    method = (
        f"`python benchmarks/skew.py --commits {commits}`, {machine}. Each cell has the duration of `compact` into empty\n"
        "tables, and the peak resident memory of the largest Python worker of Spark.\n\n"
    )
    (ROOT / "benchmarks" / "results" / "skew.md").write_text(title + method + text, encoding="utf-8")


if __name__ == "__main__":
    main()
