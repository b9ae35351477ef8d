"""The time and the peak memory of `compact` over the state of share partitions; benchmarks/results/share_jobs.md has the results.

python benchmarks/share_jobs.py             20 million records of a million share partitions
python benchmarks/share_jobs.py --scale 0.1  a tenth of both

The history is synthetic: each share partition has a snapshot and updates, each of which completes a batch of records
and releases another, as a consumer that now and then rejects records. `compact` runs in one process, without Spark:
first over all records, then over an update of every thousandth share partition.
"""

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

from offsetlake.lake.files import FileChanges, TableFile, commit, table_schema  # noqa: E402 - sys.path is set above
from offsetlake.lake.lake import Lake  # noqa: E402
from offsetlake.pipeline.compact.job import compact  # noqa: E402
from support.queries.lakes import small_lake  # noqa: E402

LOG_PARTITIONS, SHARE_PARTITIONS, RECORDS = 50, 1_000_000, 20
PARTITIONS_OF_GROUP, BATCH, CHANGED = 100, 10, 1_000
TOPIC = "0UpezRseR2unUk_C-KbOfg"
NOW = 1_700_000_000_000

Ints = npt.NDArray[np.int64]


def history(log_partition: int, run: int, keys: Ints, first_record: int, records: int, first_offset: int) -> pa.Table:
    """Return the records of some share partitions of a log partition: in turn, each of them its next record."""
    number, key = np.divmod(np.arange(records * len(keys)), len(keys))
    number, key = number + first_record, keys[key]
    is_snapshot = number == 0
    start = (number - 1) * BATCH
    batches = np.where(is_snapshot, 0, 2)
    flat = np.repeat(start, batches) + np.tile([0, BATCH], int((~is_snapshot).sum()))
    released = np.tile([0, 1], int((~is_snapshot).sum()))
    states = pa.StructArray.from_arrays(
        [pa.array(column) for column in (flat, flat + BATCH - 1)]
        + [pa.array(column.astype(np.int32)) for column in (np.where(released, 0, 2), np.ones_like(released))],
        ["first_offset", "last_offset", "delivery_state", "delivery_count"],
    )
    count = len(number)
    columns = {
        "ingest_run": pa.repeat(run, count),
        "log_partition": pa.repeat(log_partition, count),
        "log_offset": pa.array(first_offset + np.arange(count)),
        "log_timestamp": pa.array(NOW + number),
        "kind": pa.array(np.where(is_snapshot, "snapshot", "update")),
        "group_id": pa.array(
            [f"share-{log_partition:02}-{group:05}" for group in range(keys.max() // PARTITIONS_OF_GROUP + 1)]
        ).take(pa.array(key // PARTITIONS_OF_GROUP)),
        "topic_id": pa.repeat(TOPIC, count),
        "partition": pa.array(key % PARTITIONS_OF_GROUP),
        "snapshot_epoch": pa.repeat(0, count),
        "state_epoch": pa.array(np.zeros(count, np.int32), mask=~is_snapshot),
        "leader_epoch": pa.repeat(0, count),
        "start_offset": pa.array(np.where(is_snapshot, 0, start)),
        "create_timestamp": pa.array(np.full(count, NOW), mask=~is_snapshot),
        "write_timestamp": pa.array(np.full(count, NOW), mask=~is_snapshot),
        "delivery_complete_count": pa.repeat(BATCH, count),
        "state_batches": pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(batches)).astype(np.int32)), states),
        "value_version": pa.repeat(0, count),
    }
    schema = table_schema("share_state_records")
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)


def main() -> None:
    """Write a lake, compact it, and print a row of the table for each compaction."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--scale", type=float, default=1.0)
    per_log_partition = int(SHARE_PARTITIONS * options.parse_args().scale) // LOG_PARTITIONS
    with tempfile.TemporaryDirectory() as folder:
        runs = [{"run_id": run, "job": "ingest", "started_at": run, "finished_at": run} for run in (1, 3)]
        small_lake(Path(folder) / "lake", runs=runs)
        lake = Lake.create(Path(folder) / "lake")
        every = np.arange(per_log_partition)
        for run, keys, first, records in ((1, every, 0, RECORDS), (3, every[::CHANGED], RECORDS, 1)):
            files = []
            for log_partition in range(LOG_PARTITIONS):
                file = TableFile(lake, "share_state_records")
                file.write(history(log_partition, run, keys, first, records, first * per_log_partition))
                files.append(FileChanges(added=file.close()))
            commit(lake, "share_state_records", files, "ingest", run)
        for through_run in (1, None):
            began, cpu = time.perf_counter(), time.process_time()
            report = compact(lambda: None, lake, lambda _: None, through_run)
            print(report.counts, f"{time.perf_counter() - began:.1f} s, {time.process_time() - cpu:.1f} s CPU", _peak())


def _peak() -> str:
    peak = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text(encoding="utf-8"))
    return f"{int(peak[1]) // 1024:,} MB" if peak else ""


if __name__ == "__main__":
    main()
