"""Durations of every view over 20 M commits, compared with a count of the commits by group.

python benchmarks/audits.py              20 M commits, twice; writes benchmarks/results/audits.md
python benchmarks/audits.py --spark      the same, also with Spark, which takes half an hour
python benchmarks/audits.py --scale 0.1  a tenth of the commits

The commits are of a million offsets, with 20 commits each, and of 20,000 offsets, with 1,000 commits each: how often an
offset is committed between two runs of `ingest` decides how many of its commits are routine.

The queries of DataFusion are those of `offsetlake audit VIEW --limit 20`, and of `offsetlake audit VIEW --group NAME` for
views with a column group_id; Spark computes the same SELECT over the whole view. CPU time includes the threads of the
engine. The columns `repeats` and `routine` of history are measured by the bytes of their column chunks.

Then history is written again without these columns, as an older version has written it, and `offsetlake maintain`
compares its commits; the memory is the greatest resident memory of that process.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

import offsetlake  # noqa: E402 - sys.path is set above
from offsetlake.lake.lake import Lake  # noqa: E402
from offsetlake.lake.sql.views import views  # noqa: E402
from offsetlake.log.address import LogAddress  # noqa: E402
from offsetlake.pipeline.compact.job import compact  # noqa: E402
from offsetlake.pipeline.ingest.job import ingest  # noqa: E402
from offsetlake.pipeline.spark import build_session  # noqa: E402
from offsetlake.queries.audits import audit  # noqa: E402
from support.lakes_without_steps import forget_steps  # noqa: E402
from support.oracle.bulk import write_bulk_log  # noqa: E402
from support.spark_sql import DELTA  # noqa: E402

MAX_SECONDS_TO_REPEAT = 10
OF_STEPS = ("turning_points", "commit_rate", "double_writers", "regressions", "stalled_partitions")
COUNT = "SELECT group_id, count(*) AS commits FROM offset_commits GROUP BY group_id ORDER BY commits DESC LIMIT 20"


def ignore_progress(_text: str) -> None:
    pass


class Seconds(NamedTuple):
    """The duration of a query, and the CPU time of this process for it."""

    wall: float
    cpu: float


def measure(execute: Callable[[], Any]) -> Seconds:
    """Return the faster of two runs, or the first if it takes long."""
    durations: list[Seconds] = []
    while len(durations) < 2 and sum(duration.wall for duration in durations) < MAX_SECONDS_TO_REPEAT:
        start, cpu = time.perf_counter(), time.process_time()
        execute()
        durations.append(Seconds(time.perf_counter() - start, time.process_time() - cpu))
    return min(durations)


def bytes_of_steps(lake: Lake) -> tuple[int, int]:
    """Return the bytes of the columns `repeats` and `routine` of history, and those of all columns."""
    steps = every = 0
    for path in lake.table_location("offset_commits").path.glob("*.parquet"):
        metadata = pq.ParquetFile(path).metadata
        for group in range(metadata.num_row_groups):
            for number in range(metadata.num_columns):
                column = metadata.row_group(group).column(number)
                every += column.total_compressed_size
                steps += column.total_compressed_size * (column.path_in_schema in {"repeats", "routine"})
    return steps, every


def measure_views(commits: int, groups: int, folder: Path, *, in_spark: bool) -> tuple[list[str], str]:
    """Return the rows of the table, and a description of the lake."""
    spark = build_session("audits", DELTA | {"spark.master": "local[2]"} if in_spark else {})
    write_bulk_log(folder / "log", commits, groups=groups, topics=10, partitions=5)
    lake = Lake.create(folder / "lake")
    ingest(lambda: spark, lake, LogAddress(folder=folder / "log"), ignore_progress)
    compact(lambda: spark, lake, ignore_progress)
    if in_spark:
        offsetlake.register_views(spark, lake.location.path)
    one_group = lake.query("SELECT min(group_id) AS name FROM offsets")["name"][0].as_py()
    counts = [measure(partial(lake.query, COUNT))]
    if in_spark:
        counts.append(measure(lambda: spark.sql(COUNT).collect()))
    rows = [row("count by group", counts, counts, None)]
    for name, view in views().items():
        print(f"{name} …", file=sys.stderr, flush=True)
        sql = f"SELECT * FROM {name} ORDER BY {view.order} LIMIT 20"
        of_group = measure(partial(audit, lake, name, one_group, limit=1000)) if "group_id" in view.columns else None
        durations = [measure(partial(audit, lake, name, limit=20))]
        if in_spark:
            durations.append(measure(spark.sql(sql).collect))
        rows.append(row(f"`{name}`", durations, counts, of_group))
    steps, every = bytes_of_steps(lake)
    routine = lake.count("offset_commits", "routine")
    description = (
        f"{commits / 1e6:g} M commits of {groups:,} groups, {lake.count('offsets'):,} offsets; {steps / every:.1%} of "
        f"history are the columns `repeats` and `routine`, {routine / commits:.1%} of the "
        "commits are routine"
    )
    spark.stop()
    return [*rows, "", *measure_older_lake(lake)], description


def measure_older_lake(lake: Lake) -> list[str]:
    """Return what `maintain` needs to compare the commits of an older lake, and views before and after it as a table."""
    forget_steps(lake)
    durations = [{name: measure(partial(audit, lake, name, limit=20)) for name in OF_STEPS}]
    start = time.perf_counter()
    command = [sys.executable, "-m", "offsetlake.cli", "maintain", "--lake", str(lake.location)]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT / "lib")}) as maintain:
        peak, process = 0, 0
        while not process:
            status = Path(f"/proc/{maintain.pid}/status").read_text(encoding="ascii")
            peak = max([peak, *map(int, re.findall(r"VmHWM:\s+(\d+) kB", status))])
            time.sleep(0.05)
            process, code, usage = os.wait4(maintain.pid, os.WNOHANG)
        maintain.returncode = os.waitstatus_to_exitcode(code)
    assert maintain.returncode == 0
    seconds, cpu = time.perf_counter() - start, usage.ru_utime + usage.ru_stime
    durations.append({name: measure(partial(audit, lake, name, limit=20)) for name in OF_STEPS})
    routine = lake.count("offset_commits", "routine") / lake.count("offset_commits")
    needed = f"{seconds:.0f} s, {cpu:.0f} s of CPU time and {peak / 1e6:.1f} GB of memory"
    return [
        f"As a lake of an older version: `offsetlake maintain` takes {needed}; then {routine:.1%} of the commits are routine.",
        "",
        "| view | before | CPU time | after | CPU time |",
        "|---|---|---|---|---|",
        *(
            f"| `{name}` | {' | '.join(f'{d[name].wall:.2f} s | {d[name].cpu:.2f} s' for d in durations)} |"
            for name in OF_STEPS
        ),
    ]


def row(name: str, durations: list[Seconds], counts: list[Seconds], of_group: Seconds | None) -> str:
    ours, count = durations[0], counts[0]
    cells = [f"{ours.wall:.2f} s | {ours.wall / count.wall:.1f} | {ours.cpu:.2f} s | {ours.cpu / count.cpu:.1f}"]
    for spark, spark_count in zip(durations[1:], counts[1:], strict=True):
        cells.append(f"{spark.wall:.2f} s | {spark.wall / spark_count.wall:.1f}")
    return f"| {name} | {' | '.join(cells)} | {'' if of_group is None else f'{of_group.wall:.2f} s'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--to", type=Path, default=ROOT / "benchmarks" / "results" / "audits.md")
    arguments = parser.parse_args()
    commits = int(20_000_000 * arguments.scale)
    names = ["view", "DataFusion", "ratio", "CPU time", "ratio", *(["Spark", "ratio"] if arguments.spark else [])]
    heading = f"| {' | '.join([*names, 'one group'])} |\n|{'---|' * (len(names) + 1)}"
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    text = f"# Audits\n\n`python benchmarks/audits.py`, {machine}. `ratio`: to the duration of the count by group.\n"
    for groups in (20_000, 400):
        with tempfile.TemporaryDirectory() as folder:
            number = int(groups * arguments.scale) or 1
            rows, description = measure_views(commits, number, Path(folder), in_spark=arguments.spark)
        text += "\n".join(["", f"{description}:", "", heading, *rows, ""])
    print(text)
    arguments.to.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
