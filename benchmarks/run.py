"""Benchmarks of the jobs, each in the same run as a peer; prints a table and writes it to benchmarks/results/run.md.

python benchmarks/run.py                 all benchmarks; about eleven minutes on two cores
python benchmarks/run.py --scale 0.1     a tenth of the records, to test the script
python benchmarks/run.py compact memory  some of the benchmarks

The time of `compact` and of each of its peers is the shorter one of two runs in the same session.
"""

import argparse
import os
import platform
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

import pyarrow.compute as pc  # noqa: E402 - sys.path is set above
from pyspark.sql import SparkSession  # noqa: E402

from common import peers  # noqa: E402
from offsetlake.lake.lake import Lake  # noqa: E402
from offsetlake.log.address import LogAddress  # noqa: E402
from offsetlake.log.cluster.connection import KafkaConnection  # noqa: E402
from offsetlake.log.disk.folder import describe  # noqa: E402
from offsetlake.pipeline.compact.job import compact  # noqa: E402
from offsetlake.pipeline.emit.job import emit  # noqa: E402
from offsetlake.pipeline.expire.job import expire  # noqa: E402
from offsetlake.pipeline.ingest.job import ingest  # noqa: E402
from offsetlake.pipeline.parallel import distribute  # noqa: E402
from offsetlake.pipeline.spark import build_session  # noqa: E402
from offsetlake.rules.policy import RetentionPolicy  # noqa: E402
from support.broker import workload  # noqa: E402
from support.broker.broker import Broker  # noqa: E402
from support.broker.kafka_tools import java  # noqa: E402
from support.oracle.bulk import START_TIME, write_bulk_log  # noqa: E402
from support.spark_sql import DELTA  # noqa: E402

Row = tuple[str, str, str, str]


def ignore_progress(_text: str) -> None:
    pass


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def seconds(value: float) -> str:
    return f"{value:.1f} s"


def ingested_lake(
    folder: Path, spark: SparkSession, commits: int, groups: int, **shape: int
) -> tuple[Lake, Path, float]:
    """Write a bulk log and ingest it, and return the lake, the log and the seconds of the ingest."""
    log = folder / "log"
    write_bulk_log(log, commits, groups=groups, **({"topics": 10, "partitions": 5} | shape))
    lake = Lake.create(folder / "lake")
    return lake, log, timed(lambda: ingest(lambda: spark, lake, LogAddress(folder=log), ignore_progress))


def bench_compact(spark: SparkSession, scale: float, folder: Path) -> Iterator[Row]:
    commits, groups = int(20_000_000 * scale), int(20_000 * scale) or 1
    lake, _, _ = ingested_lake(folder, spark, commits, groups)
    again = Lake.open(shutil.copytree(folder / "lake", folder / "again"))
    ours = min(timed(partial(compact, lambda: spark, each, ignore_progress)) for each in (lake, again))
    keys = lake.count("offsets")
    window = min(timed(lambda: peers.window_job(spark, lake, folder / "window")) for _ in range(2))
    hashed = min(timed(lambda: peers.hash_job(spark, lake, folder / "hash")) for _ in range(2))
    duck = min(timed(lambda: peers.duckdb_job(lake, folder / "duckdb.parquet")) for _ in range(2))
    description = f"`compact` of {commits / 1e6:g} M commits over {keys:,} keys into an empty table"
    yield (
        description,
        seconds(ours),
        f"Spark window `row_number() = 1`: {seconds(window)}",
        f"{window / ours:.1f} times as fast",
    )
    yield (
        description,
        seconds(ours),
        f"Spark hash aggregation, `max_by` over primitives, without the metadata: {seconds(hashed)}",
        f"{hashed / ours:.1f} times as fast",
    )
    yield (
        description,
        seconds(ours),
        f"DuckDB `arg_max`, Parquet to Parquet: {seconds(duck)}",
        f"{duck / ours:.1f} times as fast",
    )


def bench_increment(spark: SparkSession, scale: float, folder: Path) -> Iterator[Row]:
    """Compact five commits per key, written to the log in rounds, and then 100,000 more."""
    commits, groups, new = int(40_000_000 * scale), int(200_000 * scale) or 1, int(100_000 * scale)
    lake, log, _ = ingested_lake(folder, spark, commits, groups)
    whole = timed(lambda: compact(lambda: spark, lake, ignore_progress))
    keys = lake.count("offsets")
    write_bulk_log(folder / "more", new, groups=groups, topics=10, partitions=5, seed=7)
    _append(log, folder / "more")
    ingest(lambda: spark, lake, LogAddress(folder=log), ignore_progress)
    increment = timed(lambda: compact(lambda: spark, lake, ignore_progress))
    description = f"`compact` of {new:,} new commits spread over a table of {keys:,} keys"
    yield (
        description,
        seconds(increment),
        f"compacting all ({commits / 1e6:g} M commits): {seconds(whole)}",
        f"{increment / whole:.2f}",
    )


def _append(log: Path, more: Path) -> None:
    """Append the segments of one log to another, with consecutive offsets."""
    for partition, offsets in describe(log).ranges.items():
        for segment in sorted((more / str(partition)).glob("*.log")):
            data, position = bytearray(segment.read_bytes()), 0
            while position < len(data):
                base, length = struct.unpack_from(">qi", data, position)
                struct.pack_into(">q", data, position, base + offsets.end)
                position += 12 + length
            (log / str(partition) / f"{offsets.end + int(segment.stem):020}.log").write_bytes(data)


def bench_ingest(spark: SparkSession, scale: float, folder: Path) -> Iterator[Row]:
    commits = int(5_000_000 * scale)
    runs = []
    for number in range(3):
        _, log, ingest_seconds = ingested_lake(folder / str(number), spark, commits, 20_000)
        runs.append(commits / ingest_seconds)
    segments = sorted(log.glob("*/*.log"), key=lambda path: path.stat().st_size)[-5:]
    command = java("kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", ",".join(map(str, segments)))
    with (folder / "dump").open("wb") as out:
        dump_seconds = timed(lambda: subprocess.run(command, stdout=out, check=True))
    dumped = sum(1 for line in (folder / "dump").open(encoding="utf-8") if line.startswith("| offset"))
    ours, peer = statistics.median(runs), dumped / dump_seconds
    description = f"`ingest` of {commits / 1e6:g} M commits from segments, including the Delta write"
    yield (
        description,
        f"{ours / 1e6:.2f} M/s",
        f"kafka-dump-log: {peer / 1e6:.3f} M/s",
        f"{ours / peer:.0f} times as fast",
    )


def bench_live(spark: SparkSession, scale: float, folder: Path) -> Iterator[Row]:
    rounds = max(1, int(50 * scale))
    (folder / "broker").mkdir()
    with Broker(folder / "broker") as broker:
        workload.create_topic(broker.bootstrap, "wide", 500)
        workload.member(broker.bootstrap, "first", {("wide", 0): 0}, "classic").close()  # waits for the coordinator
        workload.bulk_commits(broker.bootstrap, "wide", groups=200, partitions=500, rounds=rounds)
        live = LogAddress(connection=KafkaConnection.from_settings({"bootstrap.servers": broker.bootstrap}))
        times: dict[str, list[float]] = {"live": [], "segments": []}
        for number in range(3):
            for name, log in (("live", live), ("segments", LogAddress(folder=broker.data_dir))):
                lake = Lake.create(folder / f"{name}{number}")
                times[name].append(timed(lambda lake=lake, log=log: ingest(lambda: spark, lake, log, ignore_progress)))
    ours, peer = statistics.median(times["live"]), statistics.median(times["segments"])
    description = f"`ingest` of {rounds / 10:g} M commits from a live broker"
    yield description, seconds(ours), f"from its segments: {seconds(peer)}", f"{ours / peer:.2f} times as long"


def bench_expire(spark: SparkSession, scale: float, folder: Path) -> Iterator[Row]:
    """Evaluate retention ten days into the thirty days of the log, so that some of the offsets expire."""
    lake, _, _ = ingested_lake(folder, spark, int(20_000_000 * scale), int(100_000 * scale), topics=10, partitions=10)
    compact(lambda: spark, lake, ignore_progress)
    stored = spark.read.format("delta").load(str(lake.table_location("offsets").path))
    counted = min(timed(lambda: stored.groupBy("group_id").count().collect()) for _ in range(2))
    policy, now = RetentionPolicy(7 * 86_400_000), START_TIME + 10 * 86_400_000
    ours = timed(lambda: expire(lambda: spark, lake, policy, now, ignore_progress))
    description = f"`expire` over {lake.count('offsets'):,} offsets in {lake.count('groups'):,} groups, "
    yield (
        f"{description}{lake.count('tombstones'):,} tombstones planned",
        seconds(ours),
        f"Spark reads the table and counts it by group: {seconds(counted)}",
        f"{ours / counted:.1f} times as long",
    )


def bench_emit(spark: SparkSession, scale: float, folder: Path) -> Iterator[Row]:
    """Emit tombstones for all offsets and groups. The peer writes the same tombstones with aiokafka, without checks."""
    lake, log, _ = ingested_lake(folder, spark, int(2_000_000 * scale), int(10_000 * scale), topics=10, partitions=10)
    compact(lambda: spark, lake, ignore_progress)
    expire(lambda: spark, lake, RetentionPolicy(0), START_TIME + 365 * 86_400_000, ignore_progress)
    planned = lake.query(
        'SELECT group_id, topic, "partition" FROM tombstones ORDER BY 1, 2 NULLS LAST, 3', "tombstones"
    )
    ours = timed(lambda: emit(lake, LogAddress(folder=log), ignore_progress))
    keys = planned.filter(pc.is_valid(planned["topic"])).to_pylist()
    bare = timed(lambda: peers.bare_tombstones(keys, folder / "bare"))
    rate = planned.num_rows / ours
    yield (
        f"`emit` of {planned.num_rows:,} tombstones, one record batch for each of {lake.count('groups'):,} groups",
        f"{seconds(ours)}, {rate / 1e3:.0f} k/s",
        f"aiokafka's record batches of the same offsets, without checks, one fsync: {seconds(bare)}",
        f"{ours / bare:.1f} times as long",
    )


def bench_memory(scale: float) -> Iterator[Row]:
    """Peak memory of the driver and of its Python workers, each measurement in a separate process."""
    small, large = int(500_000 * scale), int(5_000_000 * scale)
    peaks = {}
    for commits in (small, large):
        with tempfile.TemporaryDirectory() as folder:
            write_bulk_log(Path(folder) / "log", commits, groups=2_000, topics=10, partitions=5)
            command = [sys.executable, __file__, "--measure-memory", folder]
            completed = subprocess.run(command, capture_output=True, check=True, encoding="utf-8")
        peaks[commits] = [int(part) for part in completed.stdout.split()[-2:]]
    for index, process in enumerate(("driver", "largest Python worker")):
        small_peak, large_peak = peaks[small][index], peaks[large][index]
        description = f"peak memory of the {process}, {large / 1e6:g} M commits"
        yield (
            description,
            f"{large_peak / 1024:.0f} MB",
            f"{small / 1e6:g} M commits: {small_peak / 1024:.0f} MB",
            f"{large_peak / small_peak:.2f} times",
        )


def peak_memory() -> int:
    """Return the peak resident memory of this process in KiB; its rusage would include that of its parent process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def measure_memory(folder: Path) -> None:
    spark = build_session("memory", {"spark.master": "local[2]"})
    lake = Lake.create(folder / "lake")
    ingest(lambda: spark, lake, LogAddress(folder=folder / "log"), ignore_progress)
    compact(lambda: spark, lake, ignore_progress)
    print(peak_memory(), max(distribute(spark, lambda _: peak_memory(), range(8))))
    spark.stop()


def main() -> None:
    benchmarks = {
        "compact": bench_compact,
        "increment": bench_increment,
        "ingest": bench_ingest,
        "live": bench_live,
        "expire": bench_expire,
        "emit": bench_emit,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"any of {', '.join([*benchmarks, 'memory'])}")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--measure-memory", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure_memory:
        return measure_memory(arguments.measure_memory)
    rows: list[Row] = []
    for name in arguments.names or [*benchmarks, "memory"]:
        print(f"{name} …", file=sys.stderr, flush=True)
        if name == "memory":
            rows += bench_memory(arguments.scale)
            continue
        spark = build_session("benchmarks", DELTA | {"spark.master": "local[2]"} | peers.SETTINGS)
        with tempfile.TemporaryDirectory() as folder:
            rows += benchmarks[name](spark, arguments.scale, Path(folder))
        spark.stop()
    table = "\n".join(
        ["| operation | offsetlake | peer | ratio |", "|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    )
    print(table)
    if not arguments.names and arguments.scale == 1.0:
        machine = (
            f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
        )
        (ROOT / "benchmarks" / "results" / "run.md").write_text(
            f"# Results\n\n`make bench`, {machine}\n\n{table}\n", encoding="utf-8"
        )
    return None


if __name__ == "__main__":
    main()
