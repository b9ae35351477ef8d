"""Latency and throughput of the serving process and of a Kafka 4.2 broker, with the same client in one run.

python benchmarks/serving.py                 about nine minutes on two cores; prints a table and writes
                                             it to benchmarks/serving.md
python benchmarks/serving.py --requests      only the requests, without the ten million offsets
python benchmarks/serving.py --entries 1e6   only a million offsets, without the requests

The client is a plain socket that sends prepared frames, so that the figures depend on the server.
"""

import argparse
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])

from frames import commit_frame, fetch_frame  # noqa: E402
from loading import bench_loading  # noqa: E402
from support.broker import kafka_tools, workload  # noqa: E402 - sys.path is set above
from support.broker.broker import Broker  # noqa: E402
from support.broker.kafka_tools import NEWER  # noqa: E402
from support.serve.serving import Serving  # noqa: E402
from support.serve.wire_client import WireClient  # noqa: E402

TOPIC, PARTITIONS = "bench", 100
DEPTH, CONNECTIONS = 32, 4
PRODUCTION_JVM_FLAGS = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""The flags that kafka-run-class.sh passes to a broker, except for the heap size."""

Row = tuple[str, str, str, str]


def latency(bootstrap: str, data: bytes, count: int) -> float:
    """Return the median latency of sequential requests, in microseconds."""
    with WireClient(bootstrap) as client:
        times = []
        for _ in range(count):
            start = time.perf_counter()
            client.socket.sendall(data)
            client.receive()
            times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def throughput(bootstrap: str, frames: Sequence[bytes], rounds: int) -> float:
    """Return requests per second, with DEPTH requests in flight on each connection."""
    clients = [WireClient(bootstrap) for _ in frames]
    try:
        sizes = []
        for client, data in zip(clients, frames, strict=True):
            client.socket.sendall(data)
            sizes.append(4 + len(client.receive()))
        start = time.perf_counter()
        for client, data in zip(clients, frames, strict=True):
            client.socket.sendall(data * DEPTH)
        for _ in range(rounds):
            for client, data, size in zip(clients, frames, sizes, strict=True):
                read(client.socket, size * DEPTH)
                client.socket.sendall(data * DEPTH)
        for client, size in zip(clients, sizes, strict=True):
            read(client.socket, size * DEPTH)
        seconds = time.perf_counter() - start
    finally:
        for client in clients:
            client.socket.close()
    return len(frames) * DEPTH * (rounds + 1) / seconds


def read(connection: socket.socket, size: int) -> None:
    while size:
        size -= len(connection.recv(min(size, 1 << 16)))


def alternating(ours: Callable[[], float], theirs: Callable[[], float], rounds: int = 5) -> tuple[float, float]:
    """Measure both in turn, and return the medians; the first round is a warm-up."""
    results = [(ours(), theirs()) for _ in range(rounds + 1)][1:]
    return statistics.median(first for first, _ in results), statistics.median(second for _, second in results)


def bench_requests(serving: Serving, unsynced: Serving, broker: Broker) -> Iterator[Row]:
    servers = [serving.bootstrap, unsynced.bootstrap, broker.bootstrap]
    groups = [f"bench-{number}" for number in range(CONNECTIONS)]
    for bootstrap in servers:
        for group in groups:
            latency(bootstrap, commit_frame(group, TOPIC, range(PARTITIONS)), 200)
    one, all_partitions = fetch_frame(groups[0], TOPIC, [7]), fetch_frame(groups[0], TOPIC, range(PARTITIONS))
    commit = commit_frame(groups[0], TOPIC, [7])
    pipelined_fetches = [fetch_frame(group, TOPIC, [7]) for group in groups]
    pipelined_commits = [commit_frame(group, TOPIC, [7]) for group in groups]
    for operation, data, count, ours in (
        ("`OffsetFetch` of one partition", one, 4000, servers[0]),
        ("`OffsetFetch` of 100 partitions", all_partitions, 1500, servers[0]),
        ("`OffsetCommit` of one partition, on disk before the response", commit, 2000, servers[0]),
        ("`OffsetCommit` of one partition, `--flush os` as the broker does", commit, 2000, servers[1]),
    ):
        result, peer = alternating(
            lambda data=data, count=count, address=ours: latency(address, data, count),
            lambda data=data, count=count: latency(servers[2], data, count),
        )
        yield f"{operation}, one connection, median", f"{result:.0f} us", f"{peer:.0f} us", f"{result / peer:.2f}"
    for operation, frames, rounds in (
        ("`OffsetFetch`, 4 connections, 32 requests in flight each", pipelined_fetches, 200),
        (
            "`OffsetCommit`, 4 connections, 32 requests in flight each, on disk before the response",
            pipelined_commits,
            100,
        ),
    ):
        result, peer = alternating(
            lambda frames=frames, rounds=rounds: throughput(servers[0], frames, rounds),
            lambda frames=frames, rounds=rounds: throughput(servers[2], frames, rounds),
        )
        yield operation, f"{result / 1e3:.1f} k/s", f"{peer / 1e3:.1f} k/s", f"{result / peer:.1f} times"


def table(rows: Sequence[Row]) -> str:
    header = ("operation", "offsetlake", "Kafka 4.2.0", "ratio")
    lines = [f"| {' | '.join(row)} |" for row in (header, ("---",) * 4, *rows)]
    return "\n".join(lines)


def bench_all_requests(folder: Path) -> Iterator[Row]:
    kafka_tools.JVM_FLAGS = ("-Xms1g", "-Xmx1g", *PRODUCTION_JVM_FLAGS)
    (folder / "broker").mkdir()
    with (
        Broker(folder / "broker", version=NEWER) as broker,
        Serving(folder / "lake", folder / "log") as serving,
        Serving(folder / "lake-os", folder / "log-os", flush="os") as unsynced,
    ):
        workload.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        for number in range(CONNECTIONS):
            workload.member(broker.bootstrap, f"bench-{number}", {(TOPIC, 0): 0}, "classic").close()
        yield from bench_requests(serving, unsynced, broker)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", action="store_true")
    parser.add_argument("--entries", type=float)
    arguments = parser.parse_args()
    rows: list[Row] = []
    if arguments.entries is None:
        with tempfile.TemporaryDirectory() as folder:
            rows += bench_all_requests(Path(folder))
    if not arguments.requests:
        kafka_tools.JVM_FLAGS = ("-Xms6g", "-Xmx6g", *PRODUCTION_JVM_FLAGS)
        with tempfile.TemporaryDirectory() as folder:
            rows += bench_loading(Path(folder), int(arguments.entries or 10_000_000))
    sys.stdout.write(f"{table(rows)}\n")
    if arguments.entries is None and not arguments.requests:
        text = f"# Serving\n\n`make bench`\n\n{table(rows)}\n"
        (ROOT / "benchmarks" / "serving.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
