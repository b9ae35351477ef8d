"""Share consumers through offsetlake beside those of a broker 4.2 with share groups, written to benchmarks/results/share_peers.md.

python benchmarks/share_peers.py                500,000 records, five rounds
python benchmarks/share_peers.py --records 20000 --rounds 1    to test the script

One broker has the records and is both: the peer, and the cluster of offsetlake. Both are measured in turn by the same
wire client, with groups of their own; the median of the rounds counts, after a first round to warm up. `--flush os`
writes as the broker does, without fsync before a response.
"""

import argparse
import os
import platform
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from confluent_kafka import Producer

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

from offsetlake.kafka.uuid import uuid_text  # noqa: E402 - sys.path is set above
from support.broker import kafka_tools, workload  # noqa: E402
from support.broker.broker import Broker  # noqa: E402
from support.serve.kio_requests import answered, ask, connected, exchange, request  # noqa: E402
from support.serve.share_member import ACCEPT, ShareMember, acquired, initialize, topic_id  # noqa: E402
from support.serve.sharing import Sharing  # noqa: E402

MEMBERS, PARTITIONS, RECORD_BYTES = 10, 10, 100
STATE_PARTITIONS, STATES_PER_REQUEST, ROUNDS_OF_WRITES = 1_000, 100, 5
FIND_COORDINATOR, WRITE_STATES = 10, 85
TOPICS = {"full": PARTITIONS, "empty": PARTITIONS, "states": STATES_PER_REQUEST}
JVM_FLAGS = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
REQUIRED = 0.5
"""The part of the broker's records/s that offsetlake must reach."""


class Server(NamedTuple):
    """A share-partition leader: where its members connect, and the coordinator of their groups."""

    name: str
    members: str
    coordinator: str
    process: int


class Group:
    """Members of a new share group, one of them for each of some threads."""

    def __init__(self, server: Server, topic: UUID, name: str, members: int) -> None:
        initialize(server.coordinator, name, topic, PARTITIONS, start=0)
        self._members = [ShareMember(server.members, name, topic, PARTITIONS) for _ in range(members)]

    def each(self, work: Callable[[ShareMember], int]) -> float:
        """Run the members at the same time; return the sum of their results per second."""
        results: list[int] = []
        threads = [threading.Thread(target=lambda each=each: results.append(work(each))) for each in self._members]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - started
        for member in self._members:
            member.__exit__()
        assert len(results) == len(threads)
        return sum(results) / seconds


class Benchmark:
    """Measures both servers; `records` are in the topic that is read."""

    def __init__(self, servers: Sequence[Server], records: int, rounds: int) -> None:
        self._servers, self._records, self._rounds = servers, records, rounds
        self._topics = {name: topic_id(servers[0].coordinator, name) for name in TOPICS}
        self._groups = 0

    def rows(self) -> list[tuple[str, list[float]]]:
        """Return the name and the medians of each figure, by server."""
        return [
            ("records/s through one consumer", self._alternating(lambda server: self.read(server, 1))),
            (f"records/s through {MEMBERS} consumers", self._alternating(lambda server: self.read(server, MEMBERS))),
            ("ShareAcknowledge/s of one consumer", self._alternating(lambda server: self.acknowledge(server, 1))),
            (
                f"ShareAcknowledge/s of {MEMBERS} consumers",
                self._alternating(lambda server: self.acknowledge(server, MEMBERS)),
            ),
            ("p99 of ShareFetch on an empty topic, ms", self._alternating(self.fetch_nothing)),
            (
                f"WriteShareGroupState: states/s, {STATE_PARTITIONS:,} share partitions, {STATES_PER_REQUEST} in a request",
                self._alternating(self.write_states),
            ),
        ]

    def _alternating(self, measure: Callable[[Server], float]) -> list[float]:
        results = [[measure(server) for server in self._servers] for _ in range(self._rounds + 1)][1:]
        print([[round(each, 2) for each in line] for line in results], flush=True)
        return [statistics.median(each) for each in zip(*results, strict=True)]

    def _group(self, server: Server, topic: str, members: int) -> Group:
        self._groups += 1
        return Group(server, self._topics[topic], f"group-{self._groups}", members)

    def read(self, server: Server, members: int) -> float:
        """Return the records per second that are read and acknowledged, with the next fetch."""
        left = self._records

        def work(member: ShareMember) -> int:
            nonlocal left
            count, taken = 0, {}
            while left > 0:
                response = member.fetch(taken, max_wait=timedelta(milliseconds=100))
                assert response["error_code"] == 0, response
                ranges = acquired(response)
                taken = {
                    partition: [(first, last, ACCEPT) for first, last, _ in each] for partition, each in ranges.items()
                }
                records = sum(last - first + 1 for each in ranges.values() for first, last, _ in each)
                left -= records
                count += records
            member.acknowledge(taken)
            return count

        return self._group(server, "full", members).each(work)

    def acknowledge(self, server: Server, members: int) -> float:
        """Return the requests per second, each with one record of each acquired partition."""

        def work(member: ShareMember) -> int:
            count, end = 0, time.perf_counter() + 3
            while time.perf_counter() < end:
                ranges = acquired(member.fetch(max_records=100, batch_size=100, share_acquire_mode=1))
                offsets = [(partition, offset) for partition, each in ranges.items() for first, last, _ in each
                           for offset in range(first, last + 1)]  # fmt: skip
                for partition, offset in offsets:
                    member.acknowledge({partition: [(offset, offset, ACCEPT)]})
                count += len(offsets)
            return count

        return self._group(server, "full", members).each(work)

    def fetch_nothing(self, server: Server) -> float:
        """Return the 99th percentile in ms."""
        times: list[float] = []

        def work(member: ShareMember) -> int:
            for _ in range(1000):
                started = time.perf_counter()
                assert not acquired(member.fetch(max_wait=timedelta(0)))
                times.append((time.perf_counter() - started) * 1e3)
            return 0

        self._group(server, "empty", 1).each(work)
        return statistics.quantiles(times[10:], n=100)[98]

    def write_states(self, server: Server) -> float:
        """Return the states per second; each has two batches, and a start offset that moves."""
        self._groups += 1
        topic = self._topics["states"]
        groups = [f"states-{self._groups}-{number}" for number in range(STATE_PARTITIONS // STATES_PER_REQUEST)]
        for group in groups:
            initialize(server.coordinator, group, topic, STATES_PER_REQUEST, start=0)
        bodies = [_write(group, topic, offset) for offset in range(1, ROUNDS_OF_WRITES + 1) for group in groups]
        with connected(server.coordinator) as connection:
            started = time.perf_counter()
            answers = [exchange(connection, body) for body in bodies]
            seconds = time.perf_counter() - started
        results = answered(WRITE_STATES, 0, answers[-1])["results"]
        assert {part["error_code"] for topic in results for part in topic["partitions"]} == {0}
        return len(bodies) * STATES_PER_REQUEST / seconds


def _write(group: str, topic: UUID, offset: int) -> bytes:
    partitions = []
    for number in range(STATES_PER_REQUEST):
        batches = [
            {"first_offset": first, "last_offset": first + 4, "delivery_state": state, "delivery_count": 1 + offset % 5}
            for first, state in ((offset + number, 2), (offset + number + 5, 0))
        ]
        part = {
            "partition": number,
            "state_epoch": 1,
            "leader_epoch": 0,
            "start_offset": offset,
            "state_batches": batches,
        }
        partitions.append(part)
    return request(WRITE_STATES, 0, {"group_id": group, "topics": [{"topic_id": topic, "partitions": partitions}]})


def peak_mb(process: int) -> float:
    """Return the peak resident memory of a process."""
    [kb] = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text(encoding="ascii"))
    return int(kb) / 1024


def fill(bootstrap: str, records: int) -> None:
    """Write records of RECORD_BYTES that cannot be compressed much."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    for number in range(records):
        producer.produce("full", os.urandom(RECORD_BYTES // 2).hex().encode(), partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0


def await_states(bootstrap: str) -> None:
    """Wait until the broker has created the topic of the states, which the first FindCoordinator requests."""
    topic = topic_id(bootstrap, "empty")
    key = f"first:{uuid_text(topic.bytes)}:0"
    deadline = time.monotonic() + 120
    while True:
        ask(bootstrap, FIND_COORDINATOR, 6, key_type=2, coordinator_keys=[key])
        try:
            initialize(bootstrap, "first", topic, PARTITIONS)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def measure(folder: Path, records: int, rounds: int) -> list[tuple[str, list[float]]]:
    """Start both servers, and return the figures."""
    kafka_tools.JVM_FLAGS = JVM_FLAGS
    for name in ("broker", "always", "os"):
        (folder / name).mkdir()
    with (
        Broker(folder / "broker", version=kafka_tools.NEWER) as broker,
        Sharing(folder / "always", broker) as durable,
        Sharing(folder / "os", broker, flush="os") as unsynced,
    ):
        for topic, partitions in TOPICS.items():
            workload.create_topic(broker.bootstrap, topic, partitions)
        fill(broker.bootstrap, records)
        await_states(broker.bootstrap)
        servers = [
            Server("offsetlake", durable.share, durable.bootstrap, durable.process.pid),
            Server("offsetlake, --flush os", unsynced.share, unsynced.bootstrap, unsynced.process.pid),
            Server("Kafka 4.2.0", broker.bootstrap, broker.bootstrap, broker.pid),
        ]
        found = Benchmark(servers, records, rounds).rows()
        return [*found, ("peak memory, MB", [peak_mb(server.process) for server in servers])]


def main() -> int:
    """Measure, write the table, and return 1 if the required part is not reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), given.records, given.rounds)
    lines = ["| | offsetlake | offsetlake, `--flush os` | Kafka 4.2.0 |", "|---|---:|---:|---:|"]
    lines += [
        f"| {name} | " + " | ".join(f"{each:,.{1 if each < 100 else 0}f}" for each in values) + " |"
        for name, values in rows
    ]
    parts = [values[0] / values[2] for name, values in rows if name.startswith("records/s")]
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    verdict = (
        f"Records/s of offsetlake: {', '.join(f'{each:.2f}' for each in parts)} of the broker's; required: {REQUIRED}."
    )
    text = "\n".join([f"`python benchmarks/share_peers.py`, {given.records:,} records of {RECORD_BYTES} bytes, {machine}.",
                      "Offsetlake reads the records from the broker that it is compared with.", "", *lines, "", verdict])  # fmt: skip
    print(text)
    if given.records == parser.get_default("records"):
        (ROOT / "benchmarks" / "results" / "share_peers.md").write_text(
            f"# Share consumers beside a broker\n\n{text}\n", encoding="utf-8"
        )
    return int(min(parts) < REQUIRED)


if __name__ == "__main__":
    sys.exit(main())
