"""Time and memory of questions to a fleet of 50 lakes, beside 50 calls of the command, one after the other.

python benchmarks/fleet.py              writes benchmarks/results/fleet.md
python benchmarks/fleet.py --lakes 10

Of ten lakes, six have 10,000 commits, three 100,000 and one a million. Lakes of one size are copies of one. The wall time
and the CPU time are those of the command and all its processes. Memory is the highest sum of the proportional set sizes
(PSS) of all processes at a time, in which memory that processes share counts once.
"""

import argparse
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

from common.process_memory import process_tree, proportional_bytes  # noqa: E402
from offsetlake.lake.lake import Lake  # noqa: E402
from offsetlake.pipeline.ingest.log_ends import record  # noqa: E402
from support.e2e.in_process import InProcess  # noqa: E402
from support.e2e.lakes import cycle  # noqa: E402
from support.oracle.bulk import SPAN, START_TIME, write_bulk_log  # noqa: E402

SIZES = (10_000,) * 6 + (100_000,) * 3 + (1_000_000,)
"""Commits of ten lakes."""

TOPICS, PARTITIONS = 10, 5
COMMAND = [sys.executable, "-m", "offsetlake.cli"]
QUESTIONS = ("groups", "lag", "check")
SAMPLE_INTERVAL_SECONDS = 0.05


@dataclass(frozen=True)
class Cost:
    """The seconds of wall time and of CPU time, and the peak of memory in MB."""

    wall: float
    cpu: float
    peak_mb: float

    def cells(self) -> str:
        return f"{self.wall:.1f} s | {self.cpu:.1f} s | {self.peak_mb:,.0f} MB"


def create_lake(folder: Path, commits: int) -> Path:
    """Create a lake with the log end offsets that `lag` requires, which a log in a folder does not contain."""
    write_bulk_log(folder / "log", commits, groups=max(commits // 100, 1), topics=TOPICS, partitions=PARTITIONS)
    lake = Lake.create(folder / "lake")
    ingested, _ = cycle(InProcess(), lake, folder / "log")
    shutil.rmtree(folder / "log")
    partitions = [(f"topic-{topic}", partition) for topic in range(TOPICS) for partition in range(PARTITIONS)]
    record(lake, ingested.run_id, [[*partition, 0, commits * 10, START_TIME + SPAN] for partition in partitions])
    return folder / "lake"


def create_fleet(folder: Path, number: int) -> tuple[Path, list[Path]]:
    """Create a number of lakes; return the file that lists them, and their folders."""
    originals = {size: create_lake(folder / str(size), size) for size in sorted({*SIZES[:number]})}
    lakes = [folder / "lakes" / str(place) for place in range(number)]
    for place, lake in enumerate(lakes):
        shutil.copytree(originals[SIZES[place % len(SIZES)]], lake)
    file = folder / "lakes.toml"
    file.write_text("".join(f'[lakes.cluster-{lake.name}]\nlake = "{lake}"\n' for lake in lakes), encoding="utf-8")
    return file, lakes


def measure(commands: Sequence[Sequence[str]]) -> Cost:
    """Run commands one after the other."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OFFSETLAKE_")}
    before, start, peak = cpu_seconds(), time.perf_counter(), 0
    for command in commands:
        with subprocess.Popen(
            [*COMMAND, *command, "--format", "csv"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment | {"PYTHONPATH": str(ROOT / "lib")},
        ) as process:
            while process.poll() is None:
                peak = max(peak, sum(map(proportional_bytes, process_tree(process.pid))))
                time.sleep(SAMPLE_INTERVAL_SECONDS)
        assert process.returncode == 0, command
    return Cost(time.perf_counter() - start, cpu_seconds() - before, peak / 1e6)


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lakes", type=int, default=50)
    parser.add_argument("--to", type=Path, default=ROOT / "benchmarks" / "results" / "fleet.md")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file, lakes = create_fleet(Path(folder), arguments.lakes)
        rows = [row(question, file, lakes) for question in QUESTIONS]
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    text = (
        f"# A fleet of {len(lakes)} lakes\n\nMeasured by `python benchmarks/fleet.py`, {machine}. Of ten lakes, six have "
        "10,000 commits, three 100,000 and one a million. All rows are written as CSV. Memory is the highest sum of the "
        "proportional set sizes (PSS) of all processes at a time.\n\n"
        f"| command | `--fleet`: wall | CPU | memory | {len(lakes)} commands: wall | CPU | memory | ratio of wall | of CPU |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n" + "\n".join(rows) + "\n"
    )
    print(text)
    arguments.to.write_text(text, encoding="utf-8")


def row(question: str, file: Path, lakes: list[Path]) -> str:
    print(f"{question} …", file=sys.stderr, flush=True)
    at_once = measure([[question, "--fleet", str(file)]])
    one_by_one = measure([[question, "--lake", str(lake)] for lake in lakes])
    ratios = f"{at_once.wall / one_by_one.wall:.2f} | {at_once.cpu / one_by_one.cpu:.2f}"
    return f"| `{question}` | {at_once.cells()} | {one_by_one.cells()} | {ratios} |"


if __name__ == "__main__":
    main()
