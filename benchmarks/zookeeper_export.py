"""Measures what `offsetlake export` does with a million znodes, beside a loop that writes them with kazoo.

    python benchmarks/zookeeper_export.py [ZNODES]

It starts ZooKeeper, and then measures, each in a process of its own:

* `loop`: `client.create` for each of 10,000 znodes, one after the other;
* `create`: the comparison with a ZooKeeper that has no offsets, the file for undoing, and the writing of all offsets;
* `replace`: the same when all znodes exist, with other offsets.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from offsetlake.zookeeper import writing
from offsetlake.zookeeper.address import ZooKeeperAddress
from offsetlake.zookeeper.client import connected
from offsetlake.zookeeper.undo_files import save_undo
from offsetlake.zookeeper.writing import OffsetChange
from support.zookeeper.ensemble import Ensemble, open_client

GROUPS, TOPICS = 1000, 10
LOOP_ZNODES = 10_000


def export(url: str, znodes: int, first: int) -> int:
    partitions = znodes // GROUPS // TOPICS
    changes = [
        OffsetChange(f"g{group}", f"t{topic}", partition, b"%d" % (first + partition))
        for group in range(GROUPS)
        for topic in range(TOPICS)
        for partition in range(partitions)
    ]
    with connected(ZooKeeperAddress.parse(url, {})) as client, tempfile.TemporaryDirectory() as folder:
        writing.compare(client, changes)
        save_undo(changes, Path(folder) / "undo.jsonl")
        writing.write(client, changes, lambda _: None)
    assert all(change.outcome == "done" for change in changes)
    return len(changes)


def loop(url: str) -> int:
    with connected(ZooKeeperAddress.parse(url, {})) as client:
        client.ensure_path("/loop")
        for number in range(LOOP_ZNODES):
            client.create(f"/loop/{number}", b"%d" % number)
    return LOOP_ZNODES


def measured(what: str, url: str, znodes: int) -> None:
    began = time.monotonic()
    count = loop(url) if what == "loop" else export(url, znodes, 1_000_000 if what == "create" else 2_000_000)
    seconds = time.monotonic() - began
    usage = resource.getrusage(resource.RUSAGE_SELF)
    row = {
        "what": what, "znodes": count, "seconds": round(seconds, 1), "znodes_per_second": round(count / seconds),
        "cpu_us_per_znode": round((usage.ru_utime + usage.ru_stime) / count * 1e6, 1),
        "peak_memory_mb": usage.ru_maxrss // 1024, "load": [round(load, 1) for load in os.getloadavg()],
    }  # fmt: skip
    print(json.dumps(row), flush=True)


def run(znodes: int) -> None:
    options = {"snapCount": "10000000", "forceSync": "yes"}
    with (
        tempfile.TemporaryDirectory() as folder,
        Ensemble(Path(folder), flags=("-Xmx1g",), options=options) as ensemble,
    ):
        client = open_client(ensemble)
        client.create("/consumers")
        client.stop()
        client.close()
        for what in ("loop", "create", "replace"):
            subprocess.run([sys.executable, __file__, what, ensemble.url(), str(znodes)], check=True)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        measured(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        run(int(sys.argv[1]) if len(sys.argv) == 2 else 1_000_000)
