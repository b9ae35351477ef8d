"""Translation by the offset syncs of 100,000 partitions, 10 M in total; writes benchmarks/results/translate.md.

python benchmarks/translate.py                      10 M offset syncs
python benchmarks/translate.py --syncs 1000000

The record batches are those that a Fetch response contains. Their time is not measured: only decoding and searching.
The time is the CPU time of the process, and its memory is VmHWM without that of an empty search.
"""

import argparse
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

from offsetlake.kafka.batches.reader import read_batches  # noqa: E402 - sys.path is set above
from offsetlake.kafka.mirror import SYNC_PAIR_AT, read_pairs, sync_key  # noqa: E402
from offsetlake.rules.translation import NONE, PairSearch, by_syncs  # noqa: E402

PARTITIONS, PARTITIONS_PER_TOPIC = 100_000, 100
BATCH_RECORDS, CHUNK_RECORDS = 1_000, 200_000
LAG = 100
"""Records between two offset syncs of a partition: the default of offset.lag.max."""


def chunk(keys: list[bytes], first: int, count: int) -> bytes:
    """Return offset syncs as record batches: one of each partition in turn, with the same offsets at both clusters."""
    numbers = np.arange(first, first + count)
    values = np.repeat((numbers // PARTITIONS * LAG).astype(">i8"), 2).tobytes()
    data = bytearray()
    for start in range(0, count, BATCH_RECORDS):
        builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
        for i in range(start, min(start + BATCH_RECORDS, count)):
            key = keys[(first + i) % PARTITIONS]
            builder.append(i - start, 1_700_000_000_000, key, values[16 * i : 16 * i + 16], [])
        data += builder.build()
    return bytes(data)


def peak_mb() -> int:
    """Return the peak resident memory of this process in MB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) // 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--syncs", type=int, default=10_000_000)
    syncs = parser.parse_args().syncs
    keys = [sync_key(f"topic-{n // PARTITIONS_PER_TOPIC:04}", n % PARTITIONS_PER_TOPIC) for n in range(PARTITIONS)]
    distinct = pa.array(keys, pa.binary())
    end = syncs // PARTITIONS * LAG
    offsets = np.random.default_rng(1).integers(0, end, PARTITIONS)
    search = PairSearch(np.arange(PARTITIONS), offsets)
    read_batches(chunk(keys, 0, 1000))  # compiles
    seconds, before = 0.0, 0
    for first in range(0, syncs, CHUNK_RECORDS):
        data = chunk(keys, first, min(CHUNK_RECORDS, syncs - first))
        before = before or peak_mb()
        start = time.process_time()
        search.add(*read_pairs(read_batches(data)[0], distinct, SYNC_PAIR_AT))
        seconds += time.process_time() - start
    start = time.process_time()
    ends = np.full(PARTITIONS, end)
    found = by_syncs(offsets, search.result(ends), np.zeros_like(ends), ends)
    seconds += time.process_time() - start
    expected = offsets // LAG * LAG + np.minimum(offsets % LAG, 1)
    if (found.offset != expected).any() or (found.offset == NONE).any():
        raise SystemExit("A translated offset is wrong.")
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, load average {os.getloadavg()[0]:.1f}"
    memory = peak_mb() - before
    text = (
        "# Translation by offset syncs\n\n"
        f"`python benchmarks/translate.py --syncs {syncs}`, {machine}. One group has an offset of each partition. The time is that\n"
        "of decoding the record batches and searching them, without Fetch; the memory is that of the search, beside one chunk of\n"
        "record batches. All translated offsets were compared with the expected ones.\n\n"
        "| partitions | offset syncs | CPU time | offset syncs/s | peak memory |\n|---|---|---|---|---|\n"
        f"| {PARTITIONS:,} | {syncs:,} | {seconds:.1f} s | {syncs / seconds:,.0f} | {memory} MB |\n"
    )
    (ROOT / "benchmarks" / "results" / "translate.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
