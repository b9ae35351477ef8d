"""What a client waits while others are hostile: latencies of a second client, and the server's peak memory.

python benchmarks/hostile.py                     all attacks, about five minutes on two cores; prints tables
python benchmarks/hostile.py --only 2 3          some of them, by their numbers; prints their tables
python benchmarks/hostile.py --code ../before    the server of another checkout, as a comparison

The attackers run in a process of their own. The second client fetches and commits one offset again and again, on one
connection, from before the attack until it is over. Where the server closes an attacker's connection, it connects again.
"""

import argparse
import contextlib
import multiprocessing
import os
import resource
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

from frames import commit_frame, fetch_frame  # noqa: E402 - the paths come first
from support.serve.serving import Serving  # noqa: E402
from support.serve.wire_client import METADATA, OFFSET_FETCH, WireClient, frame, request  # noqa: E402

TOPIC, PARTITIONS, GROUP = "bench", 20_000, "large"
COMMITTED_AT_ONCE = 1000
SECONDS = 5.0
PAUSE = 0.002  # seconds between two requests of the second client
MANY = 50  # connections
DESCRIBE_GROUPS, DELETE_GROUPS = 15, 42
MB = 1e6

Attack = Callable[[str, float], None]
Row = tuple[str, ...]


def connected(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), 10)


def flood(data: bytes, connections: int = 1, *, reads: bool = True) -> Attack:
    """Send the same requests again and again over some connections, each time when all of them are answered."""

    def attack(bootstrap: str, until: float) -> None:
        sockets = [connected(bootstrap) for _ in range(connections)]
        while time.monotonic() < until:
            for number, each in enumerate(sockets):
                try:
                    each.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        each.send(data)
                    if reads:
                        drain(each)
                except OSError:
                    each.close()
                    with contextlib.suppress(OSError):
                        sockets[number] = connected(bootstrap)
            time.sleep(0.001)

    return attack


def drain(connection: socket.socket) -> None:
    """Read what is there."""
    with contextlib.suppress(BlockingIOError):
        while len(data := connection.recv(1 << 20)) == 1 << 20:
            pass
        if not data:
            raise ConnectionResetError


def unfinished(bootstrap: str, until: float) -> None:
    """Send all but the end of twelve requests of 100 MiB."""
    size = 100 << 20
    sockets = [connected(bootstrap) for _ in range(12)]
    for each in sockets:
        with contextlib.suppress(OSError):
            each.sendall(struct.pack(">ihhih", size, METADATA, 9, 1, -1) + bytes(size - 1024))
    time.sleep(max(0.0, until - time.monotonic()))


def silent(bootstrap: str, until: float) -> None:
    """Connect until no more connections are accepted, and say nothing."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard := resource.getrlimit(resource.RLIMIT_NOFILE)[1], hard))
    sockets = []
    with contextlib.suppress(OSError):
        while len(sockets) < 1500 and time.monotonic() < until:
            sockets.append(connected(bootstrap))
    time.sleep(max(0.0, until - time.monotonic()))


def named(api: int, version: int, field: str, names: int) -> bytes:
    values = {field: [""] * names, "include_authorized_operations": False}
    return frame(api, version, 1, request(api, version, values))


def metadata_frame() -> bytes:
    return frame(METADATA, 1, 1, request(METADATA, 1, {"topics": [{"name": TOPIC}]}))


def all_offsets_frame() -> bytes:
    return frame(OFFSET_FETCH, 5, 1, request(OFFSET_FETCH, 5, {"group_id": GROUP, "topics": None}))


class Seen(NamedTuple):
    """What the second client saw: the latencies of its requests, in seconds."""

    fetches: list[float]
    commits: list[float]


def watch(bootstrap: str, until: float) -> Seen:
    """Fetch and commit one offset, one after the other."""
    seen = Seen([], [])
    fetch, commit = fetch_frame("light", TOPIC, [7]), commit_frame("light", TOPIC, [7])
    with WireClient(bootstrap) as client:
        client.socket.settimeout(120)
        while time.monotonic() < until:
            for data, latencies in ((fetch, seen.fetches), (commit, seen.commits)):
                began = time.perf_counter()
                client.socket.sendall(data)
                client.receive()
                latencies.append(time.perf_counter() - began)
                time.sleep(PAUSE)
    return seen


def peak_memory(process: int) -> float:
    """Return the highest resident memory of a process so far, in bytes."""
    text = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return float(next(line for line in text.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def fill(bootstrap: str) -> None:
    """Commit offsets of all partitions of the topic."""
    with WireClient(bootstrap) as client:
        for begin in range(0, PARTITIONS, COMMITTED_AT_ONCE):
            client.socket.sendall(commit_frame(GROUP, TOPIC, range(begin, begin + COMMITTED_AT_ONCE)))
            client.receive()


class Case(NamedTuple):
    """An attack; `needs_rights` says that its server has a file of permissions."""

    number: int
    says: str
    attack: Attack
    needs_rights: bool = False


def cases() -> list[Case]:
    metadata, fetch = metadata_frame() * 50, all_offsets_frame()
    return [
        Case(2, "none", lambda _, until: time.sleep(until - time.monotonic())),
        Case(2, "50 Metadata of 20,000 partitions, pipelined", flood(metadata)),
        Case(2, f"the same over {MANY} connections", flood(metadata, MANY)),
        Case(2, "200 OffsetFetch of all of 20,000 offsets, pipelined", flood(fetch * 200)),
        Case(2, f"the same over {MANY} connections", flood(fetch * 200, MANY)),
        Case(2, "170 kB of them, and the answers not read", flood(fetch * (170_000 // len(fetch)), reads=False)),
        Case(2, f"the same over {MANY} connections", flood(fetch * (170_000 // len(fetch)), MANY, reads=False)),
        Case(3, "DescribeGroups of 500,000 empty names", resend(named(DESCRIBE_GROUPS, 4, "groups", 500_000))),
        Case(3, "DeleteGroups of 200,000 names", resend(named(DELETE_GROUPS, 1, "groups_names", 200_000))),
        Case(3, "50,000 denied names", resend(denied_frame()), needs_rights=True),
        Case(3, "12 unfinished requests of 100 MiB", unfinished),
        Case(
            3,
            f"commits of 1,000 partitions over {MANY} connections",
            flood(commit_frame("big", TOPIC, range(1000)) * 4, MANY),
        ),
    ]


def denied_frame() -> bytes:
    values = {"groups": [f"denied-{number}" for number in range(50_000)], "include_authorized_operations": False}
    return frame(DESCRIBE_GROUPS, 4, 1, request(DESCRIBE_GROUPS, 4, values))


def resend(data: bytes) -> Attack:
    """Send one request again and again, each time when it is answered."""

    def attack(bootstrap: str, until: float) -> None:
        while time.monotonic() < until:
            with contextlib.suppress(OSError, EOFError), WireClient(bootstrap) as client:
                client.socket.settimeout(max(1.0, until - time.monotonic() + 30))
                while time.monotonic() < until:
                    client.socket.sendall(data)
                    client.receive()
            time.sleep(0.001)

    return attack


def percentile(latencies: Sequence[float], share: float) -> str:
    ordered = sorted(latencies)
    return f"{ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3:,.1f}" if ordered else "-"


def measured(case: Case, seconds: float) -> Row:
    """Run an attack against a server of its own, and return a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {}
        if case.needs_rights:
            rights = Path(folder, "acl.toml")
            rights.write_text(
                '[[acl]]\nprincipal = "*"\ngroup = "light"\nrights = ["read", "commit"]\n'
                f'[[acl]]\nprincipal = "*"\ngroup = "{GROUP}"\nrights = ["read", "commit"]\n',
                encoding="utf-8",
            )
            settings["rights"] = str(rights)
        with Serving(Path(folder, "lake"), Path(folder, "log"), **settings) as serving:
            fill(serving.bootstrap)
            said = len(serving.said)
            until = time.monotonic() + seconds
            attacker = multiprocessing.get_context("fork").Process(target=case.attack, args=(serving.bootstrap, until))
            attacker.start()
            try:
                seen = watch(serving.bootstrap, until)
                peak = peak_memory(serving.process.pid)
                attacker.join(60)
            finally:
                attacker.kill()
                attacker.join()
            lines = len(serving.said) - said
            ended = serving.process.poll()
            serving.kill()  # busy as it may be with what the attack has left
            if ended is not None:
                return (case.says, f"the server exited with code {ended}", *[""] * 7)
    columns = [percentile(latencies, share) for latencies in seen for share in (0.5, 0.99, 1)]
    return (case.says, *columns, f"{peak / MB:,.0f}", str(lines))


def descriptors(seconds: float) -> Row:
    """Attack a server with a soft limit of 1,024 descriptors with 1,500 silent connections."""
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
        try:
            serving = Serving(Path(folder, "lake"), Path(folder, "log")).__enter__()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        attacker = multiprocessing.get_context("fork").Process(
            target=silent, args=(serving.bootstrap, time.monotonic() + seconds)
        )
        attacker.start()
        try:
            seen = watch(serving.bootstrap, time.monotonic() + seconds)
            columns = [percentile(latencies, share) for latencies in seen for share in (0.5, 0.99, 1)]
        except (OSError, EOFError) as error:
            columns = [f"the second client lost its connection: {type(error).__name__}", *[""] * 5]
        attacker.join()
        ended = serving.process.poll()
        state = "serves" if ended is None else f"exited with code {ended}"
        serving.stop()
    return ("1,500 silent connections, soft limit of 1,024 descriptors", *columns, state)


def quota() -> Row:
    """Commit over a new connection each time, where a group may commit once a second; 10 may come at once."""
    rate, seconds = 1.0, 3.0
    data, accepted = commit_frame("light", TOPIC, [7]), 0
    with (
        tempfile.TemporaryDirectory() as folder,
        Serving(Path(folder, "lake"), Path(folder, "log"), commits_per_second=rate) as serving,
    ):
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            with contextlib.suppress(OSError, EOFError), WireClient(serving.bootstrap) as client:
                client.socket.settimeout(left)
                client.socket.sendall(data)
                client.receive()
                accepted += 1
    return ("commits over a new connection each", str(accepted), f"{10 + rate * seconds:.0f}")


LATENCY_HEADER: Row = (
    "attack",
    "fetch p50, ms", "p99", "worst",
    "commit p50, ms", "p99", "worst",
    "peak memory, MB", "log lines",
)  # fmt: skip


def tables(only: Sequence[int], seconds: float) -> Iterator[str]:
    """Yield the tables of the attacks."""
    for number, title in ((2, "Large responses to pipelined requests"), (3, "Single large requests")):
        if number in only:
            rows = [measured(case, seconds) for case in cases() if case.number == number]
            yield f"## {number}. {title}\n\n{table(LATENCY_HEADER, rows)}\n"
    if 4 in only:
        header = (*LATENCY_HEADER[:7], "the server afterwards")
        yield f"## 4. File descriptors run out\n\n{table(header, [descriptors(seconds)])}\n"
    if 8 in only:
        header = ("attack", "commits accepted in 3 s", "due by the quota")
        yield f"## 8. The quota of a group\n\n{table(header, [quota()])}\n"


def table(header: Row, rows: Sequence[Row]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ("---",) * len(header), *rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, nargs="+", choices=(2, 3, 4, 8), default=[2, 3, 4, 8])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that an attack lasts")
    parser.add_argument("--code", type=Path, default=ROOT, help="a checkout whose server is attacked")
    arguments = parser.parse_args()
    os.environ["PYTHONPATH"] = str(arguments.code.resolve() / "lib")
    for text in tables(arguments.only, arguments.seconds):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
