"""The cost of a cycle in lakes of 1, 10 and 100 thousand runs, and the files of a simulated year.

python benchmarks/growth.py               writes benchmarks/results/growth.md; about twelve minutes
python benchmarks/growth.py --scale 0.01  a hundredth of the runs and of the days, to test the script

The lakes are synthetic: the rows of former runs are written directly, most of them in files as `maintain` leaves them,
those of the newest RECENT_RUNS runs in a file per run. Then the jobs of a cycle run in a process of their own, without
Spark: a first cycle that is not measured, an idle one, and one with NEW_COMMITS new commits.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

from common.growth_lakes import ENDS, LAST_MS, RECENT_RUNS, aged_lake, simulated_days  # noqa: E402 - sys.path is set above
from offsetlake.lake.lake import Lake  # noqa: E402
from offsetlake.lake.upkeep import sizes  # noqa: E402
from offsetlake.log.address import LogAddress  # noqa: E402
from offsetlake.log.compiling import compile_loops  # noqa: E402
from offsetlake.pipeline.compact.job import compact  # noqa: E402
from offsetlake.pipeline.emit.job import emit  # noqa: E402
from offsetlake.pipeline.expire.job import expire  # noqa: E402
from offsetlake.pipeline.ingest.job import ingest  # noqa: E402
from offsetlake.pipeline.ingest.log_ends import RequestedEnds  # noqa: E402
from offsetlake.rules.policy import RetentionPolicy  # noqa: E402
from run import _append  # noqa: E402
from support.oracle.bulk import write_bulk_log  # noqa: E402

RUNS = (1_000, 10_000, 100_000)
CYCLES = ("first", "idle", "idle", "idle", "small")
COMMITS, NEW_COMMITS, GROUPS = 100_000, 1_000, 1_000
DAYS = (30, 365)
CYCLES_PER_DAY = 1
MAX_SLOWDOWN = 2


def ignore(_text: str) -> None:
    pass


def answer(number: int, _topics: Collection[str]) -> RequestedEnds:
    """Answer as a cluster in which some partitions have changed since the answer before."""
    asked = LAST_MS + number
    rows = [[topic, partition, 0, ends + number * (partition % 50 == 0), asked] for topic, partition, ends in ENDS]
    return RequestedEnds(rows, [], asked)


def cycle(lake_folder: Path, log_folder: Path, number: int) -> dict[str, float]:
    """Run the jobs of a cycle; return the seconds of CPU time of each, and the peak memory in MB."""
    compile_loops(ignore)
    lake, log = Lake.create(lake_folder), LogAddress(folder=log_folder)
    jobs = {
        "ingest": partial(ingest, lambda: None, lake, log, ignore, partial(answer, number)),
        "compact": partial(compact, lambda: None, lake, ignore),
        "expire": partial(expire, _no_spark, lake, RetentionPolicy(7 * 86_400_000), LAST_MS, ignore),
        "emit": partial(emit, lake, log, ignore),
    }
    measured, began = {}, time.perf_counter()
    for name, job in jobs.items():
        start = time.process_time()
        job()
        measured[name] = time.process_time() - start
    measured |= {"cpu": sum(measured.values()), "elapsed": time.perf_counter() - began}
    peak = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text(encoding="utf-8"))
    return measured | ({"peak": int(peak[1]) / 1024} if peak else {})


def _no_spark() -> Any:
    raise RuntimeError("the lake is too large to be evaluated without Spark")


def measure(lake: Path, log: Path, number: int, *, traced: bool = False) -> dict[str, float]:
    """Run a cycle in a process of its own; if `traced`, return only the number of files of the lake that it opened."""
    command = [sys.executable, __file__, "--cycle", str(lake), str(log), str(number)]
    with tempfile.NamedTemporaryFile("r", suffix=".trace") as trace:
        prefix = ["strace", "-f", "-qq", "-e", "trace=openat", "-o", trace.name] if traced else []
        done = subprocess.run([*prefix, *command], stdout=subprocess.PIPE, check=True)
        if traced:
            opened = re.findall(rf'openat\([^"]*"({re.escape(str(lake))}/[^"]*\.(?:json|parquet))"', trace.read())
            return {"opened": len(opened)}
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def measure_lake(folder: Path, runs: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the measurements of the cycles in a lake of this many runs."""
    lake, log, more = folder / "lake", folder / "log", folder / "more"
    write_bulk_log(log, COMMITS, groups=GROUPS, topics=10, partitions=5)
    aged_lake(lake, runs)
    write_bulk_log(more, NEW_COMMITS, groups=GROUPS, topics=10, partitions=5, seed=1)
    for number, name in enumerate(CYCLES, start=1):
        if name == "small":
            _append(log, more)
        yield name, measure(lake, log, number)
    if shutil.which("strace"):
        yield "idle", measure(lake, log, len(CYCLES) + 1, traced=True)
        _append(log, more)
        yield "small", measure(lake, log, len(CYCLES) + 2, traced=True)


def cost_rows(scale: float) -> Iterator[str]:
    """Yield the lines of the table with the cost of cycles."""
    found: dict[str, dict[int, dict[str, float]]] = {"idle": {}, "small": {}}
    counts = [max(20, int(runs * scale)) for runs in RUNS]
    for runs in counts:
        print(f"{runs:,} runs …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            for name, measured in measure_lake(Path(folder), runs):
                if name in found:
                    least = found[name].setdefault(runs, {})
                    least |= {key: min(value, least.get(key, value)) for key, value in measured.items()}
            rows = sizes(Lake.open(Path(folder, "lake")))
            print(rows.to_pandas().to_string(), file=sys.stderr)
    yield f"| cycle | measure | {' | '.join(f'{runs:,} runs' for runs in counts)} | last to first |"
    yield f"|---|---|{'---|' * len(counts)}---|"
    for name, by_runs in found.items():
        for key, text in (
            *((job, f"`{job}`, s") for job in ("ingest", "compact", "expire", "emit")),
            ("cpu", "all jobs, s"), ("elapsed", "elapsed, s"), ("peak", "peak memory, MB"), ("opened", "files opened"),
        ):  # fmt: skip
            values = [by_runs[runs].get(key) for runs in counts]
            if None not in values:
                cells = " | ".join(f"{value:.2f}" if text.endswith("s") else f"{value:,.0f}" for value in values)
                yield f"| {name} | {text} | {cells} | {values[-1] / values[0]:.2f} |"


def file_rows(scale: float) -> Iterator[str]:
    """Yield the lines of the table with the files after some days."""
    yield "| after | table | rows | data files | data, MB | files on disk | Delta log entries | checkpoints | Delta log, MB |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for days in sorted({max(2, int(days * scale)) for days in DAYS}):
        print(f"{days} days …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            lake = Lake.create(Path(folder) / "lake")
            tables = simulated_days(lake, days, CYCLES_PER_DAY)
            for row in sizes(lake).to_pylist():
                if row["table"] in tables:
                    yield f"| {days} days | {_files_row(lake, row)} |"


def _files_row(lake: Lake, row: dict[str, Any]) -> str:
    path = lake.table_location(row["table"]).path
    log = [*(path / "_delta_log").iterdir()]
    of_log = [sum(1 for file in log if file.name.endswith(suffix)) for suffix in (".json", ".parquet")]
    numbers = [row["rows"], row["files"], row["bytes"] / 1e6, len([*path.glob("*.parquet")]), *of_log]
    numbers.append(sum(file.stat().st_size for file in log) / 1e6)
    cells = [f"{number:,.1f}" if isinstance(number, float) else f"{number:,}" for number in numbers]
    return " | ".join([f"`{row['table']}`", *cells])


def report(scale: float) -> Iterator[str]:
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    yield f"# Years of growth\n\n`python benchmarks/growth.py`, {machine}.\n\n## A cycle in old lakes"
    yield (
        f"Jobs of a cycle without Spark, in lakes with rows of former runs (a quarter of them ingests, each with 20 commits, 20 changed log end "
        f"offsets of {len(ENDS):,} partitions, and 10 tombstones that were planned and emitted) that `maintain` has compacted except for those of "
        f"the newest {RECENT_RUNS} runs. The log has {COMMITS:,} commits; the small cycle reads {NEW_COMMITS:,} new ones. The least of three idle cycles, and one "
        "small cycle. The seconds of jobs are CPU time. The numbers of opened files are those of other cycles, and count repeated opens.\n"
    )
    yield from cost_rows(scale)
    yield (
        f"\n## Files of a simulated year\n{CYCLES_PER_DAY} cycle and one `maintain` per day, with the default settings, in the tables with the most commits. A cycle commits to "
        "`runs` four times, to `log_ends` once, and replaces five of 50 files of `offsets`. More cycles per day make proportionally more "
        "entries and files, until `maintain` compacts them or they are older than the retention.\n"
    )
    yield from file_rows(scale)


def main(arguments: Iterable[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--to", type=Path, default=ROOT / "benchmarks" / "results" / "growth.md")
    parser.add_argument("--cycle", nargs=3, metavar=("LAKE", "LOG", "NUMBER"), help=argparse.SUPPRESS)
    options = parser.parse_args([*arguments])
    if options.cycle:
        lake, log, number = options.cycle
        print(json.dumps(cycle(Path(lake), Path(log), int(number))))
        return
    lines = []
    for line in report(options.scale):
        print(line, flush=True)
        lines.append(line)
    options.to.write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
