"""Members of groups: heartbeats, rebalances and a restart, of the serving process and of a Kafka 4.2 broker in one run.

python benchmarks/groups.py                  about five minutes on two cores; prints a table and
                                             writes it to benchmarks/results/groups.md
python benchmarks/groups.py --groups 1000    the number of groups of three members before the restart

The same client measures both servers in turn, in several rounds whose median is reported, so that other load on the
machine affects both. `fdatasync` precedes each response of the serving process, but not those of the broker.
"""

import argparse
import base64
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])

from common.group_clients import (  # noqa: E402
    TOPIC,
    ClassicMember,
    ConsumerMember,
    Pace,
    beat_once,
    beat_until_loaded,
    rebalance,
    stabilize,
)
from serving import PRODUCTION_JVM_FLAGS, table  # noqa: E402
from support.broker import kafka_tools, workload  # noqa: E402 - sys.path is set above
from support.broker.broker import Broker  # noqa: E402
from support.broker.kafka_tools import NEWER  # noqa: E402
from support.serve.serving import Serving  # noqa: E402
from support.serve.wire_client import WireClient  # noqa: E402

PARTITIONS = 1_000
SMALL_TOPIC, SMALL_PARTITIONS = "small", 3
RATE, SECONDS = 10_000, 4.0  # heartbeats per second, and the duration of a measurement
GROUPS, GROUP_SIZE = 100, 10  # of the members that send heartbeats
CLASSIC_MEMBERS, CONSUMER_MEMBERS = 500, 1_000  # of a rebalance
ROUNDS = 3
CONNECTIONS = 10
INITIAL_DELAY_MS = 3_000
SESSION_MS = 600_000
_SETTINGS = {
    "group.initial.rebalance.delay.ms": INITIAL_DELAY_MS,
    "group.consumer.max.session.timeout.ms": SESSION_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
}
_TICKS = os.sysconf("SC_CLK_TCK")

Row = tuple[str, str, str, str]
Figures = tuple[float, ...]


class Server:
    """A server and its process; `start` starts it, and returns it when it answers requests."""

    def __init__(self, start: Callable[[], Serving | Broker]) -> None:
        self._start, self.server = start, start()

    def stop(self) -> None:
        self.server.stop()

    def start_again(self) -> None:
        self.server = self._start()

    @property
    def bootstrap(self) -> str:
        return self.server.bootstrap

    @property
    def pid(self) -> int:
        process = self.server.process if isinstance(self.server, Serving) else self.server._process  # noqa: SLF001
        assert process is not None
        return process.pid

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def medians(servers: Sequence[Server], measure: Callable[[Server, int], Figures]) -> list[Figures]:
    """Measure the servers in turn, in ROUNDS rounds after a warm-up, and return the medians of each."""
    rounds = [[measure(server, number) for server in servers] for number in range(ROUNDS + 1)][1:]
    return [
        tuple(statistics.median(figures) for figures in zip(*measured, strict=True))
        for measured in zip(*rounds, strict=True)
    ]


def compared(operation: str, ours: float, theirs: float, unit: str) -> Row:
    return operation, f"{_rounded(ours)} {unit}", f"{_rounded(theirs)} {unit}", f"{ours / theirs:.2f}"


def _rounded(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def member_id(number: int) -> str:
    return base64.urlsafe_b64encode(number.to_bytes(16))[:22].decode()


def classic_members(server: Server, group: str, count: int, stack: ExitStack) -> list[ClassicMember]:
    return [ClassicMember(group, stack.enter_context(WireClient(server.bootstrap))) for _ in range(count)]


def bench_heartbeats(servers: Sequence[Server]) -> Iterator[Row]:
    """Heartbeats of members that each have a connection of their own."""
    with ExitStack() as stack:
        classic: dict[Server, Pace] = {}
        consumer: dict[Server, Pace] = {}
        for server in servers:
            groups = [classic_members(server, f"classic-{n}", GROUP_SIZE, stack) for n in range(GROUPS)]
            joined = [member for group in groups for member in group]
            rebalance(joined)
            classic[server] = Pace((member.client.socket, member.frame()) for member in joined)
            clients = [member.client for member in joined]
            members = [
                ConsumerMember(f"consumer-{n // GROUP_SIZE}", member_id(n), SMALL_TOPIC) for n in range(len(joined))
            ]
            stabilize(clients[:CONNECTIONS], members)
            consumer[server] = Pace(
                (client.socket, member.frame()) for client, member in zip(clients, members, strict=True)
            )
        for protocol, paces in (("Heartbeat", classic), ("ConsumerGroupHeartbeat", consumer)):

            def measure(server: Server, _number: int, paces: dict[Server, Pace] = paces) -> Figures:
                before = server.cpu_seconds()
                latencies = paces[server].run(RATE, SECONDS)
                cpu = (server.cpu_seconds() - before) / SECONDS * 100
                return cpu, latencies[len(latencies) // 2] * 1e6, latencies[len(latencies) * 99 // 100] * 1e6

            ours, theirs = medians(servers, measure)
            what = f"{RATE:,} `{protocol}` per second of {GROUPS * GROUP_SIZE:,} members on as many connections"
            yield compared(f"{what}: CPU of the process, 100 is one core", ours[0], theirs[0], "%")
            yield compared(f"{what}: median", ours[1], theirs[1], "us")
            yield compared(f"{what}: 99th percentile", ours[2], theirs[2], "us")


def bench_rebalances(servers: Sequence[Server]) -> Iterator[Row]:
    with ExitStack() as stack:
        members = {server: classic_members(server, "large", CLASSIC_MEMBERS, stack) for server in servers}
        for server in servers:
            rebalance(members[server])

        def classic(server: Server, _number: int) -> Figures:
            return (rebalance(members[server]),)

        ours, theirs = medians(servers, classic)
        operation = f"rebalance of {CLASSIC_MEMBERS} members of a classic group: until all have assignments"
        yield compared(operation, ours[0], theirs[0], "s")

        def consumer(server: Server, number: int) -> Figures:
            joining = [ConsumerMember(f"large-{number}", member_id(n)) for n in range(CONSUMER_MEMBERS)]
            with ExitStack() as connections:
                clients = [connections.enter_context(WireClient(server.bootstrap)) for _ in range(CONNECTIONS)]
                return (stabilize(clients, joining),)

        ours, theirs = medians(servers, consumer)
        operation = f"{CONSUMER_MEMBERS:,} members join a consumer group (KIP-848): until all have assignments"
        yield compared(operation, ours[0], theirs[0], "s")


def bench_restart(servers: Sequence[Server], groups: int) -> Iterator[Row]:
    figures: list[Figures] = []
    for server in servers:
        before = server.resident_bytes()
        members = [ConsumerMember(f"three-{n // 3}", member_id(n), SMALL_TOPIC) for n in range(3 * groups)]
        with ExitStack() as connections:
            clients = [connections.enter_context(WireClient(server.bootstrap)) for _ in range(CONNECTIONS)]
            for number in range(3):
                beat_once(clients, members[number::3])
            stabilize(clients, members)
        size = (server.resident_bytes() - before) / len(members)
        epochs = [member.epoch for member in members]
        server.stop()
        start = time.perf_counter()
        server.start_again()
        with ExitStack() as connections:
            clients = [connections.enter_context(WireClient(server.bootstrap)) for _ in range(CONNECTIONS)]
            beat_until_loaded(clients, members)
            seconds = time.perf_counter() - start
        rebalanced = sum(member.epoch != epoch for member, epoch in zip(members, epochs, strict=True))
        figures.append((seconds, rebalanced, size))
    ours, theirs = figures
    operation = f"restart with {groups:,} consumer groups of 3 members"
    yield compared(f"{operation}: until a heartbeat of each member was answered", ours[0], theirs[0], "s")
    yield f"{operation}: members with another epoch", str(int(ours[1])), str(int(theirs[1])), ""
    yield (
        f"resident memory per member of {groups:,} consumer groups of 3 members, each with a partition",
        f"{ours[2]:.0f} bytes",
        "",
        "",
    )


def bench(folder: Path, groups: int) -> Iterator[Row]:
    kafka_tools.JVM_FLAGS = ("-Xms1g", "-Xmx1g", *PRODUCTION_JVM_FLAGS)
    (folder / "broker").mkdir()
    coordinator = {"initial_rebalance_delay_ms": INITIAL_DELAY_MS, "consumer_session_timeout_ms": SESSION_MS}
    settings = {"topics": {TOPIC: PARTITIONS, SMALL_TOPIC: SMALL_PARTITIONS}, "coordinator": coordinator}
    broker = Broker(folder / "broker", {name: str(value) for name, value in _SETTINGS.items()}, NEWER)

    def start_broker() -> Broker:
        broker.start()
        return broker

    with ExitStack() as stack:
        servers = [Server(lambda: Serving(folder / "lake", folder / "log", **settings).__enter__())]
        stack.callback(servers[0].stop)
        servers.append(Server(start_broker))
        stack.callback(broker.kill)
        workload.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        workload.create_topic(broker.bootstrap, SMALL_TOPIC, SMALL_PARTITIONS)
        workload.member(broker.bootstrap, "first", {(TOPIC, 0): 0}, "classic").close()
        for part in (bench_heartbeats(servers), bench_rebalances(servers), bench_restart(servers, groups)):
            for row in part:
                print(row, flush=True)
                yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=10_000)
    groups = parser.parse_args().groups
    with tempfile.TemporaryDirectory() as folder:
        rows = table(list(bench(Path(folder), groups)))
    sys.stdout.write(f"{rows}\n")
    cores, load = os.cpu_count(), os.getloadavg()[2]
    text = (
        f"# Members of groups\n\n`python benchmarks/groups.py`, {datetime.now(UTC):%Y-%m-%d}, on a machine with {cores} "
        f"cores and other load (load average {load:.1f}, this program included).\n\n{rows}\n"
    )
    (ROOT / "benchmarks" / "results" / "groups.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
