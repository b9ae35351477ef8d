"""What it costs to be measured and to be protected: the serving process beside itself, one client in one run.

python benchmarks/guarded.py                 about three minutes on two cores; prints a table, and writes it to
                                             benchmarks/guarded.md
python benchmarks/guarded.py --seconds 0.2   the time a measurement takes in each of its rounds

Each round asks the servers in another order, so that each is the first once and what drifts meanwhile falls on all.
The client sends frames made before; what TLS takes at its end is in the numbers too.
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

from frames import FETCH_VERSION, commit_frame, fetch_frame  # noqa: E402 - the paths come first
from support.serve.secured import USERS, Secured, authenticate, scram_first, scram_last, secured, shake_hands  # noqa: E402
from support.serve.serving import Serving  # noqa: E402
from support.serve.wire_client import OFFSET_FETCH, WireClient, read_answer  # noqa: E402

TOPIC, PARTITION, COMMITTED = "bench", 7, 49
USER, MECHANISM = "billing", "SCRAM-SHA-256"
CONNECTIONS, DEPTH = 4, 4
GROUPS = [f"billing-{number}" for number in range(CONNECTIONS)]
WARM_UP = 200  # requests of each connection
NEVER_REACHED = 1_000_000  # commits a second, of a group
ALWAYS, OS = "always", "os"
Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """What a server has; `names` are those of its settings that name files of a secured one."""

    says: str
    settings: Mapping[str, Any]
    names: tuple[str, ...] = ()

    @property
    def tls(self) -> bool:
        return "tls_key" in self.names

    @property
    def login(self) -> bool:
        return "credentials" in self.names


METRICS = {"http": ["127.0.0.1", 0]}
TLS = ("tls_certificate", "tls_key")
LOGIN = (*TLS, "credentials", "rights")
GUARDS = (
    Guard("plain", {}),
    Guard("metrics", METRICS),
    Guard("TLS", {}, TLS),
    Guard("TLS, login, rights", {}, LOGIN),
    Guard(
        "all, quota, commits recorded", METRICS | {"commits_per_second": NEVER_REACHED, "commits_recorded": 1}, LOGIN
    ),
)


class Asked:
    """The servers of one guard, by when a commit is on the disk, with connections that stay open."""

    def __init__(self, guard: Guard, files: Secured, folder: Path, stack: ExitStack) -> None:
        self.guard, self._files = guard, files
        self.clients: dict[str, list[WireClient]] = {}
        for flush in (ALWAYS, OS):
            settings = {name: files.settings[name] for name in guard.names} | dict(guard.settings)
            serving = stack.enter_context(Serving(folder / f"lake-{flush}", folder / flush, flush=flush, **settings))
            self.clients[flush] = [stack.enter_context(self._connect(serving)) for _ in GROUPS]
            for client, group in zip(self.clients[flush], GROUPS, strict=True):
                warm_up(client, group)

    def _connect(self, serving: Serving) -> WireClient:
        client = self._files.wire(serving.bootstrap) if self.guard.tls else WireClient(serving.bootstrap)
        if self.guard.login:
            log_in(client)
        return client


def log_in(client: WireClient) -> None:
    assert shake_hands(client, MECHANISM)["error_code"] == 0
    first = scram_first(USER)
    said = authenticate(client, first)
    assert said["error_code"] == 0, said
    last = authenticate(client, scram_last(MECHANISM, USERS[USER], first, said["auth_bytes"]))
    assert last["error_code"] == 0, last


def warm_up(client: WireClient, group: str) -> None:
    """Commit and fetch, and look at what is answered."""
    commit, fetch = commit_frame(group, TOPIC, [PARTITION]), fetch_frame(group, TOPIC, [PARTITION])
    for _ in range(WARM_UP):
        client.socket.sendall(commit)
        assert client.receive().endswith(b"\0\0"), "an error"
        client.socket.sendall(fetch)
        fetched = client.receive()
    _, answer = read_answer(OFFSET_FETCH, FETCH_VERSION, fetched)
    assert answer.topics[0].partitions[0].committed_offset == COMMITTED, answer


def latency(clients: Sequence[WireClient], frames: Sequence[bytes], seconds: float) -> Numbers:
    """Give median and 99th percentile of one request after the other, in microseconds."""
    client, data, times = clients[0], frames[0], []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        client.socket.sendall(data)
        client.receive()
        times.append(time.perf_counter() - start)
    times.sort()
    return times[len(times) // 2] * 1e6, times[len(times) * 99 // 100] * 1e6


def throughput(clients: Sequence[WireClient], frames: Sequence[bytes], seconds: float) -> Numbers:
    """Give requests a second, with DEPTH of them under way on each connection."""
    both, answered = list(zip(clients, frames, strict=True)), 0
    for client, data in both:
        client.socket.sendall(data * DEPTH)
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for client, data in both:
            for _ in range(DEPTH):
                client.receive()
            client.socket.sendall(data * DEPTH)
        answered += DEPTH * len(both)
    for client, _ in both:
        for _ in range(DEPTH):
            client.receive()
    answered += DEPTH * len(both)
    return (answered / (time.perf_counter() - start),)


class Measure(NamedTuple):
    says: str
    units: tuple[str, ...]
    of: Callable[[Sequence[WireClient], Sequence[bytes], float], Numbers]
    flush: str
    frames: Sequence[bytes]


_FETCHES = [fetch_frame(group, TOPIC, [PARTITION]) for group in GROUPS]
_COMMITS = [commit_frame(group, TOPIC, [PARTITION]) for group in GROUPS]
_ALONE, _DEEP = ("median, us", "99 in 100, us"), ("a second",)
_MANY = f"{CONNECTIONS} connections, {DEPTH} deep"
MEASURES = (
    Measure("`OffsetFetch`, one at a time", _ALONE, latency, ALWAYS, _FETCHES),
    Measure("`OffsetCommit`, on disk before the answer, one at a time", _ALONE, latency, ALWAYS, _COMMITS),
    Measure("`OffsetCommit`, `--flush os`, one at a time", _ALONE, latency, OS, _COMMITS),
    Measure(f"`OffsetFetch`, {_MANY}", _DEEP, throughput, ALWAYS, _FETCHES),
    Measure(f"`OffsetCommit`, on disk before the answer, {_MANY}", _DEEP, throughput, ALWAYS, _COMMITS),
    Measure(f"`OffsetCommit`, `--flush os`, {_MANY}", _DEEP, throughput, OS, _COMMITS),
)


def measured(measure: Measure, servers: Sequence[Asked], seconds: float) -> dict[str, Numbers]:
    """Give the medians of all rounds, by what the servers have."""
    found: dict[str, list[Numbers]] = {asked.guard.says: [] for asked in servers}
    for first in range(len(servers)):
        for asked in (*servers[first:], *servers[:first]):
            numbers = measure.of(asked.clients[measure.flush], measure.frames, seconds)
            found[asked.guard.says].append(numbers)
    return {says: tuple(map(statistics.median, zip(*of, strict=True))) for says, of in found.items()}


def rows(measure: Measure, found: Mapping[str, Numbers]) -> Iterator[tuple[str, ...]]:
    """Give a row for each number that is measured, each server's beside what it is of the first one's."""
    for at, unit in enumerate(measure.units):
        plain = next(iter(found.values()))[at]
        cells = [f"{of[at]:,.0f} ({of[at] / plain:.2f})" for of in found.values()]
        yield (f"{measure.says}: {unit}", f"{plain:,.0f}", *cells[1:])


def table(lines: Sequence[Sequence[str]]) -> str:
    header = ("what", *(guard.says for guard in GUARDS))
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ("---",) * len(header), *lines))


def bench(folder: Path, seconds: float) -> list[tuple[str, ...]]:
    files = secured(folder)
    with ExitStack() as stack:
        servers = [Asked(guard, files, folder / str(at), stack) for at, guard in enumerate(GUARDS)]
        return [line for measure in MEASURES for line in rows(measure, measured(measure, servers, seconds))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        text = table(bench(Path(folder), seconds))
    sys.stdout.write(f"{text}\n")
    of = f"medians of {len(GUARDS)} rounds of {seconds:g} s, in brackets what it is of the plain one's"
    about = f"# What metrics and protection cost\n\n`python benchmarks/guarded.py`: {of}.\n"
    (ROOT / "benchmarks" / "guarded.md").write_text(f"{about}\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
