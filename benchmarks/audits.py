"""Durations of every view over 20 M commits in both engines, compared with a count of the commits by group.

python benchmarks/audits.py              20 M commits; writes benchmarks/audits.md
python benchmarks/audits.py --scale 0.1  a tenth of the commits

The queries are those of `offsetlake audit VIEW --limit 20`, which computes the whole view and returns its worst rows, and
of `offsetlake audit VIEW --group NAME` for views with a column group_id.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

import offsetlake  # noqa: E402 - sys.path is set above
from offsetlake.lake.lake import Lake  # noqa: E402
from offsetlake.lake.sql.views import views  # noqa: E402
from offsetlake.log.address import LogAddress  # noqa: E402
from offsetlake.pipeline.compact.job import compact  # noqa: E402
from offsetlake.pipeline.ingest.job import ingest  # noqa: E402
from offsetlake.pipeline.spark import build_session  # noqa: E402
from support.oracle.bulk import write_bulk_log  # noqa: E402
from support.spark_sql import DELTA  # noqa: E402

MAX_SECONDS_TO_REPEAT = 10
COUNT = "SELECT group_id, count(*) AS commits FROM offset_commits GROUP BY group_id ORDER BY commits DESC LIMIT 20"


def ignore_progress(_text: str) -> None:
    pass


def measure_query(execute: Callable[[str], Any], sql: str) -> float:
    """Return the seconds of the faster of two runs, or of the first if it takes long."""
    durations: list[float] = []
    while len(durations) < 2 and sum(durations) < MAX_SECONDS_TO_REPEAT:
        start = time.perf_counter()
        execute(sql)
        durations.append(time.perf_counter() - start)
    return min(durations)


def measure_views(commits: int, groups: int, folder: Path) -> tuple[list[str], str]:
    """Return the rows of the table, and a description of the lake."""
    spark = build_session("audits", DELTA | {"spark.master": "local[2]"})
    write_bulk_log(folder / "log", commits, groups=groups, topics=10, partitions=5)
    lake = Lake.create(folder / "lake")
    ingest(lambda: spark, lake, LogAddress(folder=folder / "log"), ignore_progress)
    compact(lambda: spark, lake, ignore_progress)
    offsetlake.register_views(spark, lake.location.path)
    one_group = "WHERE group_id = '{}'".format(lake.query("SELECT min(group_id) AS name FROM offsets")["name"][0])
    engines: list[Callable[[str], Any]] = [lake.query, lambda sql: spark.sql(sql).collect()]
    count_seconds = [measure_query(execute, COUNT) for execute in engines]
    rows = [row("count by group", count_seconds, count_seconds, None)]
    for name, view in views().items():
        print(f"{name} …", file=sys.stderr, flush=True)
        sql = f"SELECT * FROM {name} ORDER BY {view.order} LIMIT 20"
        one_group_seconds = (
            measure_query(lake.query, f"SELECT * FROM {name} {one_group} LIMIT 1000")
            if "group_id" in view.columns
            else None
        )
        rows.append(
            row(f"`{name}`", [measure_query(execute, sql) for execute in engines], count_seconds, one_group_seconds)
        )
    description = f"{commits / 1e6:g} M commits of {groups:,} groups, {lake.count('offsets'):,} offsets"
    spark.stop()
    return rows, description


def row(name: str, query_seconds: list[float], count_seconds: list[float], one_group_seconds: float | None) -> str:
    cells = [
        f"{seconds:.2f} s | {seconds / count:.1f}" for seconds, count in zip(query_seconds, count_seconds, strict=True)
    ]
    return f"| {name} | {' | '.join(cells)} | {'' if one_group_seconds is None else f'{one_group_seconds:.2f} s'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--to", type=Path, default=ROOT / "benchmarks" / "audits.md")
    arguments = parser.parse_args()
    commits, groups = int(20_000_000 * arguments.scale), int(20_000 * arguments.scale) or 1
    with tempfile.TemporaryDirectory() as folder:
        rows, description = measure_views(commits, groups, Path(folder))
    header = ["| view | DataFusion | ratio | Spark | ratio | one group, DataFusion |", "|---|---|---|---|---|---|"]
    table = "\n".join([*header, *rows])
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    text = f"# Audits\n\n`python benchmarks/audits.py`, {machine}: {description}. `ratio`: to the duration of the count by group.\n\n{table}\n"
    print(text)
    arguments.to.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
