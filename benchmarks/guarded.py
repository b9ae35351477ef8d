"""The cost of metrics, TLS, authentication and quotas: the serving process compared with itself in one run.

python benchmarks/guarded.py                 about three minutes on two cores; prints a table and
                                             writes it to benchmarks/results/guarded.md
python benchmarks/guarded.py --seconds 0.2   the duration of a measurement in each round

Each round measures the servers in a different order, so that each is first once and drift affects all of them. The
client sends prepared frames; the figures include the time that TLS takes in the client.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])

from common.frames import FETCH_VERSION, commit_frame, fetch_frame  # noqa: E402 - sys.path is set above
from support.serve.secured import USERS, Secured, authenticate, scram_first, scram_last, secured, shake_hands  # noqa: E402
from support.serve.serving import Serving  # noqa: E402
from support.serve.wire_client import OFFSET_FETCH, WireClient, read_answer  # noqa: E402

TOPIC, PARTITION, COMMITTED = "bench", 7, 49
USER, MECHANISM = "billing", "SCRAM-SHA-256"
CONNECTIONS, DEPTH = 4, 4
GROUPS = [f"billing-{number}" for number in range(CONNECTIONS)]
WARM_UP_REQUESTS = 200  # per connection
UNREACHABLE_QUOTA = 1_000_000  # commits per second and group
ALWAYS, OS = "always", "os"
Figures = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration that is measured; `secured_settings` are the settings it takes from a secured server."""

    name: str
    settings: Mapping[str, Any]
    secured_settings: tuple[str, ...] = ()

    @property
    def tls(self) -> bool:
        return "tls_key" in self.secured_settings

    @property
    def login(self) -> bool:
        return "credentials" in self.secured_settings


METRICS = {"http": ["127.0.0.1", 0]}
TLS = ("tls_certificate", "tls_key")
LOGIN = (*TLS, "credentials", "acl")
CONFIGURATIONS = (
    Configuration("plain", {}),
    Configuration("metrics", METRICS),
    Configuration("TLS", {}, TLS),
    Configuration("TLS, SASL, ACL", {}, LOGIN),
    Configuration(
        "all, quota, audit events", METRICS | {"commits_per_second": UNREACHABLE_QUOTA, "commits_recorded": 1}, LOGIN
    ),
)


class Servers:
    """The servers of one configuration, by flush policy, and open connections to them."""

    def __init__(self, configuration: Configuration, files: Secured, folder: Path, stack: ExitStack) -> None:
        self.configuration, self._files = configuration, files
        self.clients: dict[str, list[WireClient]] = {}
        for flush in (ALWAYS, OS):
            settings = {name: files.settings[name] for name in configuration.secured_settings} | dict(
                configuration.settings
            )
            serving = stack.enter_context(Serving(folder / f"lake-{flush}", folder / flush, flush=flush, **settings))
            self.clients[flush] = [stack.enter_context(self._connect(serving)) for _ in GROUPS]
            for client, group in zip(self.clients[flush], GROUPS, strict=True):
                warm_up(client, group)

    def _connect(self, serving: Serving) -> WireClient:
        client = self._files.wire(serving.bootstrap) if self.configuration.tls else WireClient(serving.bootstrap)
        if self.configuration.login:
            log_in(client)
        return client


def log_in(client: WireClient) -> None:
    assert shake_hands(client, MECHANISM)["error_code"] == 0
    first = scram_first(USER)
    challenge = authenticate(client, first)
    assert challenge["error_code"] == 0, challenge
    last = authenticate(client, scram_last(MECHANISM, USERS[USER], first, challenge["auth_bytes"]))
    assert last["error_code"] == 0, last


def warm_up(client: WireClient, group: str) -> None:
    """Commit and fetch, and check the responses."""
    commit, fetch = commit_frame(group, TOPIC, [PARTITION]), fetch_frame(group, TOPIC, [PARTITION])
    for _ in range(WARM_UP_REQUESTS):
        client.socket.sendall(commit)
        assert client.receive().endswith(b"\0\0"), "the commit failed"
        client.socket.sendall(fetch)
        fetched = client.receive()
    _, answer = read_answer(OFFSET_FETCH, FETCH_VERSION, fetched)
    assert answer.topics[0].partitions[0].committed_offset == COMMITTED, answer


def latency(clients: Sequence[WireClient], frames: Sequence[bytes], seconds: float) -> Figures:
    """Return the median and the 99th percentile of the latency of sequential requests, in microseconds."""
    client, data, times = clients[0], frames[0], []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        client.socket.sendall(data)
        client.receive()
        times.append(time.perf_counter() - start)
    times.sort()
    return times[len(times) // 2] * 1e6, times[len(times) * 99 // 100] * 1e6


def throughput(clients: Sequence[WireClient], frames: Sequence[bytes], seconds: float) -> Figures:
    """Return requests per second, with DEPTH requests in flight on each connection."""
    connections, responses = list(zip(clients, frames, strict=True)), 0
    for client, data in connections:
        client.socket.sendall(data * DEPTH)
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for client, data in connections:
            for _ in range(DEPTH):
                client.receive()
            client.socket.sendall(data * DEPTH)
        responses += DEPTH * len(connections)
    for client, _ in connections:
        for _ in range(DEPTH):
            client.receive()
    responses += DEPTH * len(connections)
    return (responses / (time.perf_counter() - start),)


class Measurement(NamedTuple):
    name: str
    units: tuple[str, ...]
    function: Callable[[Sequence[WireClient], Sequence[bytes], float], Figures]
    flush: str
    frames: Sequence[bytes]


_FETCHES = [fetch_frame(group, TOPIC, [PARTITION]) for group in GROUPS]
_COMMITS = [commit_frame(group, TOPIC, [PARTITION]) for group in GROUPS]
_LATENCY_UNITS, _THROUGHPUT_UNITS = ("median, us", "99th percentile, us"), ("requests/s",)
_PIPELINED = f"{CONNECTIONS} connections, {DEPTH} requests in flight each"
MEASUREMENTS = (
    Measurement("`OffsetFetch`, one at a time", _LATENCY_UNITS, latency, ALWAYS, _FETCHES),
    Measurement(
        "`OffsetCommit`, on disk before the response, one at a time", _LATENCY_UNITS, latency, ALWAYS, _COMMITS
    ),
    Measurement("`OffsetCommit`, `--flush os`, one at a time", _LATENCY_UNITS, latency, OS, _COMMITS),
    Measurement(f"`OffsetFetch`, {_PIPELINED}", _THROUGHPUT_UNITS, throughput, ALWAYS, _FETCHES),
    Measurement(
        f"`OffsetCommit`, on disk before the response, {_PIPELINED}", _THROUGHPUT_UNITS, throughput, ALWAYS, _COMMITS
    ),
    Measurement(f"`OffsetCommit`, `--flush os`, {_PIPELINED}", _THROUGHPUT_UNITS, throughput, OS, _COMMITS),
)


def measure_all(measurement: Measurement, servers: Sequence[Servers], seconds: float) -> dict[str, Figures]:
    """Return the medians of all rounds by configuration."""
    rounds: dict[str, list[Figures]] = {server.configuration.name: [] for server in servers}
    for first in range(len(servers)):
        for server in (*servers[first:], *servers[:first]):
            figures = measurement.function(server.clients[measurement.flush], measurement.frames, seconds)
            rounds[server.configuration.name].append(figures)
    return {name: tuple(map(statistics.median, zip(*figures, strict=True))) for name, figures in rounds.items()}


def rows(measurement: Measurement, medians: Mapping[str, Figures]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each unit: the figures of all configurations, and their ratios to the first one."""
    for index, unit in enumerate(measurement.units):
        plain = next(iter(medians.values()))[index]
        cells = [f"{figures[index]:,.0f} ({figures[index] / plain:.2f})" for figures in medians.values()]
        yield (f"{measurement.name}: {unit}", f"{plain:,.0f}", *cells[1:])


def table(lines: Sequence[Sequence[str]]) -> str:
    header = ("operation", *(configuration.name for configuration in CONFIGURATIONS))
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ("---",) * len(header), *lines))


def bench(folder: Path, seconds: float) -> list[tuple[str, ...]]:
    files = secured(folder)
    with ExitStack() as stack:
        servers = [
            Servers(configuration, files, folder / str(number), stack)
            for number, configuration in enumerate(CONFIGURATIONS)
        ]
        return [
            line
            for measurement in MEASUREMENTS
            for line in rows(measurement, measure_all(measurement, servers, seconds))
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        text = table(bench(Path(folder), seconds))
    sys.stdout.write(f"{text}\n")
    description = (
        f"medians of {len(CONFIGURATIONS)} rounds of {seconds:g} s, with the ratio to the plain server in brackets"
    )
    heading = f"# Cost of metrics, TLS, authentication and quotas\n\n`python benchmarks/guarded.py`: {description}.\n"
    (ROOT / "benchmarks" / "results" / "guarded.md").write_text(f"{heading}\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
