"""Measures commits to the log with and without ZooKeeper beside it, and commits to ZooKeeper as the store.

    python benchmarks/zookeeper_store.py [SECONDS]

It starts ZooKeeper, which syncs each write to the disk, and then measures, each for so many seconds:

* `kazoo`: a loop of `transaction().commit()` of kazoo with the znodes of one commit, one after the other;
* `log`, `log, also ZooKeeper`: `serve` with the log as the store, without and with `[serve.zookeeper]`, in turn, four
  rounds each; the clients commit at a limited rate, or as fast as they can;
* `store = "zookeeper"`: `serve` with ZooKeeper as the store, with one client and with many.

Clients are threads of one process. Each commits to its groups in rotation, and sends a commit after the response to the
one before.
"""

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from itertools import cycle, islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kazoo.client import KazooClient

from support.serve.serving import Serving
from support.serve.wire_client import OFFSET_COMMIT, WireClient, frame, request
from support.zookeeper.ensemble import Ensemble, open_client

GROUPS, PARTITIONS, ROUNDS, MANY_CLIENTS = 1_000, 10, 4, 50
PACED_CLIENTS, PAUSE_SECONDS = 4, 0.01


def commit_frame(group: str, offset: int) -> bytes:
    rows = [
        {"partition_index": each, "committed_offset": offset, "committed_metadata": ""} for each in range(PARTITIONS)
    ]
    values = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
    topics = [{"name": "orders", "partitions": rows}]
    return frame(OFFSET_COMMIT, 7, offset, request(OFFSET_COMMIT, 7, {**values, "topics": topics}))


def committing(bootstrap: str, frames: list[bytes], pause: float, end: float, seconds: list[float]) -> None:
    with WireClient(bootstrap) as client:
        for data in cycle(frames):
            began = time.perf_counter()
            if began > end:
                return
            client.socket.sendall(data)
            assert client.receive()[-2:] == b"\0\0"
            seconds.append(time.perf_counter() - began)
            if pause:
                time.sleep(pause)


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def measured(served: Serving, clients: int, pause: float, seconds: float) -> dict[str, float]:
    latencies: list[list[float]] = [[] for _ in range(clients)]
    names = [f"g{number}" for number in range(GROUPS)]
    frames = [
        [commit_frame(name, offset) for offset in (1, 2) for name in islice(names, client, None, clients)]
        for client in range(clients)
    ]
    end, before = time.perf_counter() + seconds, cpu_seconds(served.process.pid)
    threads = [
        threading.Thread(target=committing, args=(served.bootstrap, frames[each], pause, end, latencies[each]))
        for each in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cpu = cpu_seconds(served.process.pid) - before
    return summary([each for of_client in latencies for each in of_client], seconds) | {
        "server_cpu_us_per_commit": round(cpu / sum(map(len, latencies)) * 1e6, 1)
    }


def summary(latencies: list[float], seconds: float) -> dict[str, float]:
    points = statistics.quantiles(latencies, n=100)
    return {
        "commits": len(latencies), "commits_per_second": round(len(latencies) / seconds),
        "median_ms": round(statistics.median(latencies) * 1e3, 3), "p99_ms": round(points[98] * 1e3, 2),
    }  # fmt: skip


def kazoo_loop(client: KazooClient, seconds: float) -> dict[str, float]:
    paths = [f"/loop/{number}" for number in range(PARTITIONS)]
    for path in paths:
        client.create(path, b"0", makepath=True)
    latencies, end = [], time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        transaction = client.transaction()
        for path in paths:
            transaction.set_data(path, b"%d" % len(latencies))
        transaction.commit()
        latencies.append(time.perf_counter() - began)
    return summary(latencies, seconds)


def show(what: str, clients: int, row: dict[str, float]) -> None:
    load = [round(each, 1) for each in os.getloadavg()]
    print(json.dumps({"what": what, "clients": clients, **row, "load": load}), flush=True)


def run(seconds: float) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Ensemble(Path(folder), flags=("-Xmx1g",), options={"forceSync": "yes"}) as ensemble,
    ):
        client = open_client(ensemble)
        client.create("/consumers")
        show("kazoo", 1, kazoo_loop(client, seconds))
        client.stop()
        client.close()
        settings = {"address": ensemble.url()}
        places = {
            name: (Path(folder) / name / "lake", Path(folder) / name / "log") for name in ("log", "both", "store")
        }
        for clients, pause, what in ((PACED_CLIENTS, PAUSE_SECONDS, "paced"), (PACED_CLIENTS, 0.0, "fast")):
            with Serving(*places["log"]) as log, Serving(*places["both"], zookeeper=settings) as both:
                for number in range(ROUNDS * 2):
                    is_log = number % 4 in {0, 3}
                    name = f"log, {what}" if is_log else f"log, also ZooKeeper, {what}"
                    show(name, clients, measured(log if is_log else both, clients, pause, seconds))
        with Serving(*places["store"], zookeeper=settings, store="zookeeper") as served:
            served.wait_for_line("ZooKeeper is the store of committed offsets")
            for clients in (1, MANY_CLIENTS):
                show('store = "zookeeper"', clients, measured(served, clients, 0.0, seconds))


if __name__ == "__main__":
    run(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
