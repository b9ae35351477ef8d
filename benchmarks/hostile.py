"""Latencies of a well-behaved client, and peak memory of the server, while hostile clients attack the server.

python benchmarks/hostile.py                     all attacks; about five minutes on two cores; prints tables
python benchmarks/hostile.py --only 2 3          the attacks of these sections; prints their tables
python benchmarks/hostile.py --code ../before    attacks the server of another checkout, for comparison

The attackers run in a separate process (common/hostile_attacks.py). During the attack, the second client fetches and commits one
offset over and over on one connection. An attacker whose connection is closed by the server connects again.
"""

import argparse
import contextlib
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

from common.frames import commit_frame, fetch_frame  # noqa: E402 - sys.path is set above
from common.hostile_attacks import GROUP, TOPIC, Case, cases, open_silent_connections  # noqa: E402
from support.serve.serving import Serving  # noqa: E402
from support.serve.wire_client import WireClient  # noqa: E402

PARTITIONS = 20_000
PARTITIONS_PER_COMMIT = 1000
DEFAULT_ATTACK_SECONDS = 5.0
PAUSE_SECONDS = 0.002  # between two requests of the second client
BYTES_PER_MB = 1e6
SECTIONS = (2, 3, 4, 8)

Row = tuple[str, ...]


class Latencies(NamedTuple):
    """The latencies of the requests of the second client, in seconds."""

    fetches: list[float]
    commits: list[float]


def measure_latencies(bootstrap: str, until: float) -> Latencies:
    """Fetch and commit one offset in turn, and return the latencies."""
    latencies = Latencies([], [])
    fetch, commit = fetch_frame("light", TOPIC, [7]), commit_frame("light", TOPIC, [7])
    with WireClient(bootstrap) as client:
        client.socket.settimeout(120)
        while time.monotonic() < until:
            for data, seconds in ((fetch, latencies.fetches), (commit, latencies.commits)):
                start = time.perf_counter()
                client.socket.sendall(data)
                client.receive()
                seconds.append(time.perf_counter() - start)
                time.sleep(PAUSE_SECONDS)
    return latencies


def peak_memory(process: int) -> float:
    """Return the peak resident memory of a process (VmHWM), in bytes."""
    text = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return float(next(line for line in text.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def commit_all_partitions(bootstrap: str) -> None:
    """Commit an offset of every partition of the topic."""
    with WireClient(bootstrap) as client:
        for begin in range(0, PARTITIONS, PARTITIONS_PER_COMMIT):
            client.socket.sendall(commit_frame(GROUP, TOPIC, range(begin, begin + PARTITIONS_PER_COMMIT)))
            client.receive()


def percentile(latencies: Sequence[float], share: float) -> str:
    """Return a percentile in milliseconds as text."""
    ordered = sorted(latencies)
    return f"{ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3:,.1f}" if ordered else "-"


def measure_attack(case: Case, seconds: float) -> Row:
    """Run an attack against a new server, and return a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {}
        if case.with_acl:
            acl = Path(folder, "acl.toml")
            acl.write_text(
                '[[acl]]\nprincipal = "*"\ngroup = "light"\npermissions = ["read", "commit"]\n'
                f'[[acl]]\nprincipal = "*"\ngroup = "{GROUP}"\npermissions = ["read", "commit"]\n',
                encoding="utf-8",
            )
            settings["acl"] = str(acl)
        with Serving(Path(folder, "lake"), Path(folder, "log"), **settings) as serving:
            commit_all_partitions(serving.bootstrap)
            line_count = len(serving.said)
            until = time.monotonic() + seconds
            attacker = multiprocessing.get_context("fork").Process(target=case.attack, args=(serving.bootstrap, until))
            attacker.start()
            try:
                latencies = measure_latencies(serving.bootstrap, until)
                peak = peak_memory(serving.process.pid)
                attacker.join(60)
            finally:
                attacker.kill()
                attacker.join()
            lines = len(serving.said) - line_count
            exit_code = serving.process.poll()
            serving.kill()  # it may still be processing requests of the attack
            if exit_code is not None:
                return (case.description, f"the server exited with code {exit_code}", *[""] * 7)
    columns = [percentile(seconds, share) for seconds in latencies for share in (0.5, 0.99, 1)]
    return (case.description, *columns, f"{peak / BYTES_PER_MB:,.0f}", str(lines))


def exhaust_descriptors(seconds: float) -> Row:
    """Open 1,500 silent connections to a server whose soft limit is 1,024 file descriptors."""
    with tempfile.TemporaryDirectory() as folder:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limits[1]))
        try:
            serving = Serving(Path(folder, "lake"), Path(folder, "log")).__enter__()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        attacker = multiprocessing.get_context("fork").Process(
            target=open_silent_connections, args=(serving.bootstrap, time.monotonic() + seconds)
        )
        attacker.start()
        try:
            latencies = measure_latencies(serving.bootstrap, time.monotonic() + seconds)
            columns = [percentile(seconds, share) for seconds in latencies for share in (0.5, 0.99, 1)]
        except (OSError, EOFError) as error:
            columns = [f"the second client lost its connection: {type(error).__name__}", *[""] * 5]
        attacker.join()
        exit_code = serving.process.poll()
        state = "running" if exit_code is None else f"exited with code {exit_code}"
        serving.stop()
    return ("1,500 silent connections, soft limit of 1,024 descriptors", *columns, state)


def exceed_quota() -> Row:
    """Commit on a new connection each time to a group with a quota of one commit per second and a burst of 10."""
    rate, seconds = 1.0, 3.0
    data, accepted = commit_frame("light", TOPIC, [7]), 0
    with (
        tempfile.TemporaryDirectory() as folder,
        Serving(Path(folder, "lake"), Path(folder, "log"), commits_per_second=rate) as serving,
    ):
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0:
            with contextlib.suppress(OSError, EOFError), WireClient(serving.bootstrap) as client:
                client.socket.settimeout(remaining)
                client.socket.sendall(data)
                client.receive()
                accepted += 1
    return ("commits on a new connection each", str(accepted), f"{10 + rate * seconds:.0f}")


LATENCY_HEADER: Row = (
    "attack",
    "fetch p50, ms", "p99", "maximum",
    "commit p50, ms", "p99", "maximum",
    "peak memory, MB", "log lines",
)  # fmt: skip


def tables(sections: Sequence[int], seconds: float) -> Iterator[str]:
    """Run the attacks of the sections, and yield their tables."""
    for section, title in ((2, "Large responses to pipelined requests"), (3, "Single large requests")):
        if section in sections:
            rows = [measure_attack(case, seconds) for case in cases() if case.section == section]
            yield f"## {section}. {title}\n\n{table(LATENCY_HEADER, rows)}\n"
    if 4 in sections:
        header = (*LATENCY_HEADER[:7], "server afterwards")
        yield f"## 4. Exhaustion of file descriptors\n\n{table(header, [exhaust_descriptors(seconds)])}\n"
    if 8 in sections:
        header = ("attack", "commits accepted in 3 s", "allowed by the quota")
        yield f"## 8. Quota of a group\n\n{table(header, [exceed_quota()])}\n"


def table(header: Row, rows: Sequence[Row]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ("---",) * len(header), *rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", type=int, nargs="+", choices=SECTIONS, default=SECTIONS, help="sections of the results"
    )
    parser.add_argument("--seconds", type=float, default=DEFAULT_ATTACK_SECONDS, help="duration of an attack")
    parser.add_argument("--code", type=Path, default=ROOT, help="checkout whose server is attacked")
    arguments = parser.parse_args()
    os.environ["PYTHONPATH"] = str(arguments.code.resolve() / "lib")
    for text in tables(arguments.only, arguments.seconds):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
