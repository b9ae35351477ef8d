"""Requests of many groups with advancing offsets: the serving process beside a Kafka 4.2 broker, in one run.

python benchmarks/traffic.py                about six minutes on two cores; writes benchmarks/results/traffic.md
python benchmarks/traffic.py --rounds 1     a short form, which writes nothing

Offsets of 1,000 groups are fetched and those of 200 are committed. The groups are in all 50 log partitions, each request
names another group than the one before, and each commit has new offsets. Consumers commit to their own group
every time. The client is a plain socket that sends prepared frames, so that the figures depend on the server.
"""

import argparse
import itertools
import os
import platform
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])

from common.frames import commit_frame, fetch_frame  # noqa: E402
from common.loading import resident  # noqa: E402
from serving import PRODUCTION_JVM_FLAGS, Row, table  # noqa: E402
from support.broker import kafka_tools, workload  # noqa: E402 - sys.path is set above
from support.broker.broker import Broker  # noqa: E402
from support.broker.kafka_tools import NEWER  # noqa: E402
from support.serve.serving import Serving  # noqa: E402
from support.serve.wire_client import WireClient  # noqa: E402

TOPIC, PARTITIONS = "bench", 100
FETCHED, COMMITTED = 1000, 200
DEPTH, CONNECTIONS = 32, 4
_OFFSET = struct.Struct(">q")
_FIRST_OFFSET = 42  # of partition 0 in `commit_frame`, the next partition has one more


class Latency(NamedTuple):
    """Microseconds."""

    median: float
    p99: float


class Commits:
    """Frames that commit to some groups in rotation, with higher offsets each time."""

    def __init__(self, groups: Sequence[str], partitions: Sequence[int]) -> None:
        self._templates = [bytearray(commit_frame(group, TOPIC, partitions)) for group in groups]
        self._places = []
        for frame in self._templates:
            position, places = 0, []
            for partition in partitions:
                position = frame.index(_OFFSET.pack(_FIRST_OFFSET + partition), position)
                places.append(position)
            self._places.append(places)
        self._offset = itertools.count(1000)

    def take(self, number: int) -> list[bytes]:
        """Return the next frames."""
        frames = []
        for _ in range(number):
            offset = next(self._offset)
            which = offset % len(self._templates)
            frame = self._templates[which]
            for place in self._places[which]:
                _OFFSET.pack_into(frame, place, offset)
            frames.append(bytes(frame))
        return frames


def latencies(bootstrap: str, frames: Sequence[bytes]) -> list[float]:
    """Return how long each of sequential requests took, in microseconds."""
    times = []
    with WireClient(bootstrap) as client:
        for frame in frames:
            start = time.perf_counter()
            client.socket.sendall(frame)
            client.receive()
            times.append((time.perf_counter() - start) * 1e6)
    return times[len(times) // 10 :]  # the first ones are a warm-up


def throughput(bootstrap: str, frames: Sequence[Sequence[bytes]]) -> float:
    """Return requests per second, with DEPTH requests in flight on each connection."""
    clients = [WireClient(bootstrap) for _ in frames]
    bursts = [
        [b"".join(each[begin : begin + DEPTH]) for begin in range(0, len(each) - DEPTH + 1, DEPTH)] for each in frames
    ]
    try:
        sizes = []
        for client, each in zip(clients, frames, strict=True):
            client.socket.sendall(each[-1])
            sizes.append(4 + len(client.receive()))
        start = time.perf_counter()
        for number in range(len(bursts[0]) + 1):
            for client, each, size in zip(clients, bursts, sizes, strict=True):
                if number:
                    _read(client, size * DEPTH)
                if number < len(each):
                    client.socket.sendall(each[number])
        return sum(map(len, bursts)) * DEPTH / (time.perf_counter() - start)
    finally:
        for client in clients:
            client.socket.close()


def _read(client: WireClient, size: int) -> None:
    while size:
        size -= len(client.socket.recv(min(size, 1 << 20)))


class Benchmark:
    """Measures servers in turn; the first round is a warm-up."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self.rows: list[Row] = []

    def latency(self, name: str, frames: Callable[[], Sequence[bytes]], ours: str, theirs: str) -> None:
        """Add a row with the latencies of sequential requests."""
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(self._rounds + 1):
            for server, each in zip((ours, theirs), times, strict=True):
                found = latencies(server, frames())
                each.extend(found if number else ())
        result, peer = (Latency(statistics.median(each), statistics.quantiles(each, n=100)[98]) for each in times)
        our_text, their_text = (f"{each.median:,.0f} us (p99 {each.p99:,.0f})" for each in (result, peer))
        self.rows.append((name, our_text, their_text, f"{result.median / peer.median:.2f}"))

    def throughput(self, name: str, frames: Callable[[], list[list[bytes]]], ours: str, theirs: str) -> None:
        """Add a row with requests per second of several connections."""
        results = [(throughput(ours, frames()), throughput(theirs, frames())) for _ in range(self._rounds + 1)][1:]
        result, peer = (statistics.median(each) for each in zip(*results, strict=True))
        self.rows.append((name, f"{result / 1e3:,.1f} k/s", f"{peer / 1e3:,.1f} k/s", f"{result / peer:.2f} times"))


def bare_sync(folder: Path) -> float:
    """Return the median time in microseconds of a write of 4 KiB and an fdatasync in a file of constant size."""
    times = []
    with (folder / "bare").open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, 8 << 20)
        for number in range(2000):
            start = time.perf_counter()
            os.pwrite(file.fileno(), b"x" * 4096, number * 4096)
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def measure(benchmark: Benchmark, disk: str, unsynced: str, broker: str) -> Iterator[str]:
    """Measure all kinds of traffic; yield lines of text for below the table."""
    fetched = [f"group-{number:04}" for number in range(FETCHED)]
    committed = fetched[:COMMITTED]
    for server in (disk, unsynced, broker):
        latencies(server, Commits(fetched, range(PARTITIONS)).take(FETCHED))
    for partitions in ([7], range(PARTITIONS)):
        what = f"{len(partitions)} partition{'s' * (len(partitions) > 1)}"
        fetches = [fetch_frame(group, TOPIC, partitions) for group in fetched]
        benchmark.latency(f"OffsetFetch, 1 connection, {what}", lambda each=fetches: each * 2, disk, broker)
        count = 12_800 if len(partitions) == 1 else 3_200
        rotated = [
            [*itertools.islice(itertools.cycle(fetches), start * 250, start * 250 + count)] for start in range(4)
        ]
        benchmark.throughput(f"OffsetFetch, 4 connections 32 deep, {what}", lambda each=rotated: each, disk, broker)
        commits = Commits(committed, partitions)
        own = [Commits([group], partitions) for group in committed[:CONNECTIONS]]
        for how, ours in (("on disk", disk), ("`--flush os`", unsynced)):
            benchmark.latency(
                f"OffsetCommit {how}, 1 connection, {what}", lambda each=commits: each.take(1500), ours, broker
            )
            for who, sources in (("", [commits] * CONNECTIONS), ("of one group each, ", own)):
                benchmark.throughput(
                    f"OffsetCommit {how}, 4 connections {who}32 deep, {what}",
                    lambda each=sources, count=count: [source.take(count // 4) for source in each],
                    ours,
                    broker,
                )
    batch = Commits(fetched, range(PARTITIONS))
    benchmark.throughput(
        "OffsetCommit on disk, a tool that commits for 1,000 groups, 1 connection 32 deep, 100 partitions",
        lambda: [batch.take(FETCHED)],
        disk,
        broker,
    )
    yield "The columns of latencies are medians, with the 99th percentile in brackets. The broker does not sync."


def run(rounds: int) -> str:
    kafka_tools.JVM_FLAGS = ("-Xms1g", "-Xmx1g", *PRODUCTION_JVM_FLAGS)
    benchmark = Benchmark(rounds)
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        (folder / "broker").mkdir()
        with (
            Broker(folder / "broker", version=NEWER) as broker,
            Serving(folder / "lake", folder / "log") as serving,
            Serving(folder / "lake-os", folder / "log-os", flush="os") as unsynced,
        ):
            workload.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
            workload.member(broker.bootstrap, "first", {(TOPIC, 0): 0}, "classic").close()
            at_rest = resident(serving.process.pid)
            lines = [*measure(benchmark, serving.bootstrap, unsynced.bootstrap, broker.bootstrap)]
            after = resident(serving.process.pid)
        lines.append(
            f"A bare write of 4 KiB with fdatasync, in a file of constant size: {bare_sync(folder):.0f} us (median)."
        )
        lines.append(f"Resident memory of `serve` at rest {at_rest / 1e6:.0f} MB, afterwards {after / 1e6:.0f} MB.")
    return f"{table(benchmark.rows)}\n\n{chr(10).join(lines)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (default 5)")
    arguments = parser.parse_args()
    text = run(arguments.rounds)
    sys.stdout.write(text)
    if arguments.rounds >= 5:
        machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
        head = f"# Traffic of many groups\n\n`python benchmarks/traffic.py`, {machine}\n\n"
        (ROOT / "benchmarks" / "results" / "traffic.md").write_text(head + text, encoding="utf-8")


if __name__ == "__main__":
    main()
