"""Load time and memory of the states of share partitions in the serving process, written to benchmarks/results/share.md.

python benchmarks/share.py                    a million share partitions
python benchmarks/share.py --partitions 10000 a small log, to test the script

Each share partition has a snapshot, and the given number of updates with one batch each. A separate process loads the
log as the server does. CPU seconds are given because they depend least on other work of the machine.
"""

import argparse
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "lib")]

from offsetlake.coordinator.share_state.requests import SharePartitionKey  # noqa: E402 - sys.path is set above
from offsetlake.kafka.batches.writer import record_batch  # noqa: E402
from offsetlake.kafka.placement import partition_for_share_partition  # noqa: E402
from offsetlake.kafka.uuid import uuid_text  # noqa: E402
from offsetlake.log.positions import SHARE_STATE_PARTITIONS, SHARE_STATE_TOPIC, LogPartition  # noqa: E402
from offsetlake.log.writer.appending import appending  # noqa: E402
from offsetlake.rules.share_state import ShareSnapshot, ShareUpdate, StateBatch  # noqa: E402
from offsetlake.serve.steps import complete  # noqa: E402
from offsetlake.share.state.log import ShareStateLog  # noqa: E402
from offsetlake.share.state.packed import packed_key  # noqa: E402
from offsetlake.share.state.records import encoded_value, record_type  # noqa: E402

PARTITIONS_OF_TOPIC, RECORDS_PER_BATCH, UPDATES_PER_SNAPSHOT = 100, 500, 500
TIME_MS = 1_700_000_000_000
_MEASURED = (
    "Each share partition has one snapshot, and as many updates with one batch each as the table says. Memory is the "
    "growth of resident memory, including the buffers of reading.\n"
)


def write_log(folder: Path, partitions: int, updates: int) -> None:
    """Write the states of share partitions, of groups with one topic each."""
    keys: list[list[bytes]] = [[] for _ in range(SHARE_STATE_PARTITIONS)]
    for number in range(partitions):
        group, partition = divmod(number, PARTITIONS_OF_TOPIC)
        key = SharePartitionKey(f"group-{group:05}", uuid_text(group.to_bytes(16)), partition)
        keys[partition_for_share_partition(*key, SHARE_STATE_PARTITIONS)].append(packed_key(key))
    with appending(folder, "benchmark") as appender:
        for number, of_partition in enumerate(keys):
            records = _records(of_partition, updates)
            while some := [*islice(records, RECORDS_PER_BATCH)]:
                appender.append(LogPartition(SHARE_STATE_TOPIC, number), [record_batch(TIME_MS, some)])


def _records(keys: list[bytes], updates: int) -> Iterator[tuple[bytes, bytes | None]]:
    snapshot = ShareSnapshot(0, 1, 0, 0, create_timestamp=TIME_MS, write_timestamp=TIME_MS)
    yield from ((record_type(snapshot) + key, encoded_value(snapshot)) for key in keys)
    for number in range(updates):
        batch = StateBatch(10 * number, 10 * number + 5, 1, 2)
        update = ShareUpdate(0, 0, -1, (batch,), number + 1)
        yield from ((record_type(update) + key, encoded_value(update)) for key in keys)


def load(folder: str, results: "multiprocessing.Queue[tuple[float, float, float]]") -> None:
    """Load the log; put wall and CPU seconds, and the growth of resident memory in MB, into `results`."""
    before, began, cpu = _resident_mb(), time.perf_counter(), time.process_time()
    log = ShareStateLog(Path(folder), UPDATES_PER_SNAPSHOT)
    complete(log.read())
    measured = time.perf_counter() - began, time.process_time() - cpu, _resident_mb() - before
    results.put(measured)


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "share.md")
    arguments = parser.parse_args()
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    lines = [
        "# Share groups\n",
        f"Measured by `python benchmarks/share.py`, {machine}.\n",
        "## Loading the states of share partitions\n",
        _MEASURED,
        "| share partitions | updates of each | seconds | CPU seconds | records/CPU second | MB | bytes per share partition |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    spawned = multiprocessing.get_context("spawn")
    for updates in (0, 1):
        with tempfile.TemporaryDirectory() as folder:
            write_log(Path(folder), arguments.partitions, updates)
            results: multiprocessing.Queue[tuple[float, float, float]] = spawned.Queue()
            process = spawned.Process(target=load, args=(folder, results))
            process.start()
            seconds, cpu, mb = results.get(timeout=600)
            process.join()
        records = arguments.partitions * (1 + updates)
        lines.append(
            f"| {arguments.partitions:,} | {updates} | {seconds:.1f} | {cpu:.1f} | {records / cpu:,.0f} | {mb:,.0f} "
            f"| {mb * 1e6 / arguments.partitions:,.0f} |"
        )
    arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
