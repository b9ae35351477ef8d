"""Every view over 20 M commits, in both engines, beside a plain count of the table by group; to benchmarks/audits.md.

python benchmarks/audits.py              all of them
python benchmarks/audits.py --scale 0.1  a tenth of the commits

Asked as `offsetlake audit VIEW --limit 20` asks: the whole view is made, its worst rows are given; and, where a view has
groups, as `--group NAME` asks.
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

import offsetlake  # noqa: E402 - the paths come first
from offsetlake.lake.lake import Lake  # noqa: E402
from offsetlake.lake.views import views  # noqa: E402
from offsetlake.log.address import LogAddress  # noqa: E402
from offsetlake.pipeline.compact.job import compact  # noqa: E402
from offsetlake.pipeline.ingest.job import ingest  # noqa: E402
from offsetlake.pipeline.spark import build_session  # noqa: E402
from support.oracle.bulk import write_bulk_log  # noqa: E402

LONG = 10  # seconds
COUNT = "SELECT group_id, count(*) AS commits FROM offset_commits GROUP BY group_id ORDER BY commits DESC LIMIT 20"


def quiet(_text: str) -> None:
    pass


def timed(ask: Callable[[str], Any], sql: str) -> float:
    """Seconds of the better of two runs, the first one warms up what caches there are; of one where it takes long."""
    taken: list[float] = []
    while len(taken) < 2 and sum(taken) < LONG:
        start = time.perf_counter()
        ask(sql)
        taken.append(time.perf_counter() - start)
    return min(taken)


def measured(commits: int, groups: int, folder: Path) -> tuple[list[str], str]:
    """The rows of the table, and what was asked."""
    spark = build_session("audits", {"spark.master": "local[2]"})
    write_bulk_log(folder / "log", commits, groups=groups, topics=10, partitions=5)
    lake = Lake.create(folder / "lake")
    ingest(lambda: spark, lake, LogAddress(folder=folder / "log"), quiet)
    compact(lambda: spark, lake, quiet)
    offsetlake.register_views(spark, lake.path)
    one_group = "WHERE group_id = '{}'".format(lake.query("SELECT min(group_id) AS name FROM offsets")["name"][0])
    engines: list[Callable[[str], Any]] = [lake.query, lambda sql: spark.sql(sql).collect()]
    counted = [timed(ask, COUNT) for ask in engines]
    rows = [row("a plain count by group", counted, counted, None)]
    for name, view in views().items():
        print(f"{name} …", file=sys.stderr, flush=True)
        sql = f"SELECT * FROM {name} ORDER BY {view.order} LIMIT 20"
        of_one = (
            timed(lake.query, f"SELECT * FROM {name} {one_group} LIMIT 1000") if "group_id" in view.columns else None
        )
        rows.append(row(f"`{name}`", [timed(ask, sql) for ask in engines], counted, of_one))
    what = f"{commits / 1e6:g} M commits of {groups:,} groups, {lake.count('offsets'):,} offsets"
    spark.stop()
    return rows, what


def row(what: str, taken: list[float], counted: list[float], of_one: float | None) -> str:
    cells = [f"{seconds:.2f} s | {seconds / count:.1f}" for seconds, count in zip(taken, counted, strict=True)]
    return f"| {what} | {' | '.join(cells)} | {'' if of_one is None else f'{of_one:.2f} s'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--to", type=Path, default=ROOT / "benchmarks" / "audits.md")
    arguments = parser.parse_args()
    commits, groups = int(20_000_000 * arguments.scale), int(20_000 * arguments.scale) or 1
    with tempfile.TemporaryDirectory() as folder:
        rows, what = measured(commits, groups, Path(folder))
    head = ["| view | DataFusion | counts | Spark | counts | of one group, DataFusion |", "|---|---|---|---|---|---|"]
    table = "\n".join([*head, *rows])
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    text = f"# Audits\n\n`python benchmarks/audits.py`, {machine}: {what}. `counts`: in plain counts by group.\n\n{table}\n"
    print(text)
    arguments.to.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
