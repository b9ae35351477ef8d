"""Measures `offsetlake import` from a ZooKeeper with a million znodes, beside a loop that reads them with kazoo.

    python benchmarks/zookeeper_import.py [ZNODES]

It starts ZooKeeper, writes the znodes, and then measures, each in a process of its own:

* `loop`: `client.get` for each of the first 100,000 znodes, one after the other;
* `reading`: what `offsetlake import` reads: groups, active consumers, topics, partitions and offsets;
* `plan`: the whole command without `--execute`, into an empty lake.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from offsetlake.cli import main
from offsetlake.log.writer.example_log import write_example
from offsetlake.pipeline import runner
from offsetlake.zookeeper.address import ZooKeeperAddress
from offsetlake.zookeeper.client import connected
from offsetlake.zookeeper.consumers import read_offsets
from support.e2e.in_process import NoSpark
from support.zookeeper.ensemble import Ensemble, open_client

GROUPS, TOPICS = 1000, 10
LOOP_ZNODES = 100_000
WINDOW = 1000


def paths(znodes: int) -> Iterator[str]:
    numbers = product(range(GROUPS), range(TOPICS), range(znodes // GROUPS // TOPICS))
    return (f"/consumers/g{group}/offsets/t{topic}/{partition}" for group, topic, partition in numbers)


def write_znodes(ensemble: Ensemble, znodes: int) -> None:
    client = open_client(ensemble)
    pending = deque[Any]()
    for topic in range(TOPICS):
        for group in range(GROUPS):
            client.ensure_path(f"/consumers/g{group}/offsets/t{topic}")
    for path in paths(znodes):
        pending.append(client.create_async(path, b"1234567"))
        if len(pending) == WINDOW:
            pending.popleft().get()
    for result in pending:
        result.get()
    client.stop()
    client.close()


def loop(url: str, znodes: int) -> int:
    read = list(islice(paths(znodes), LOOP_ZNODES))
    with connected(ZooKeeperAddress.parse(url, {})) as client:
        for path in read:
            client.get(path)
    return len(read)


def reading(url: str) -> int:
    with connected(ZooKeeperAddress.parse(url, {})) as client:
        return read_offsets(client, "*", lambda _: None).rows.num_rows


def plan(url: str, znodes: int) -> int:
    runner.LazySession = NoSpark  # type: ignore[assignment,misc]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_example(Path("log"))
        assert main.run(["run", "--lake", "lake", "--log", "log"]) == 0
        assert main.run(["import", url, "--lake", "lake", "--log", "log"]) == 0
    return znodes


def measured(what: str, url: str, znodes: int) -> None:
    began = time.monotonic()
    count = {"loop": lambda: loop(url, znodes), "reading": lambda: reading(url), "plan": lambda: plan(url, znodes)}[
        what
    ]()
    seconds = time.monotonic() - began
    usage = resource.getrusage(resource.RUSAGE_SELF)
    row = {
        "what": what, "znodes": count, "seconds": round(seconds, 1), "znodes_per_second": round(count / seconds),
        "cpu_us_per_znode": round((usage.ru_utime + usage.ru_stime) / count * 1e6, 1),
        "peak_memory_mb": usage.ru_maxrss // 1024, "load": [round(load, 1) for load in os.getloadavg()],
    }  # fmt: skip
    print(json.dumps(row), file=sys.stderr, flush=True)


def run(znodes: int) -> None:
    options = {"snapCount": "10000000"}
    with (
        tempfile.TemporaryDirectory() as folder,
        Ensemble(Path(folder), flags=("-Xmx1g",), options=options) as ensemble,
    ):
        write_znodes(ensemble, znodes)
        for what in ("loop", "reading", "plan"):
            command = [sys.executable, __file__, what, ensemble.url(), str(znodes)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        measured(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        run(int(sys.argv[1]) if len(sys.argv) == 2 else 1_000_000)
