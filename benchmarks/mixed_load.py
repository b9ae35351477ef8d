"""A server under a mixed load for ten minutes: counts wrong answers, and measures memory and latency.

python benchmarks/mixed_load.py                 prints its progress, and writes benchmarks/results/mixed_load.md
python benchmarks/mixed_load.py --minutes 0.5   a shorter run; exits with 1 after a wrong answer

Clients commit (with OffsetCommit, in transactions, and over HTTP with expected offsets), fetch, describe, list and delete,
and compare each response with their model (common/mixed_clients.py). A consumer follows the log. Jobs ingest the log and delete
its segments, so that the server refreshes its snapshot repeatedly (common/mixed_beside.py). These count as wrong answers, too: a
refused commit, a lost connection, a missing or repeated record in the log, a failed job, and an unexpected line in the
server's log.
"""

import argparse
import os
import queue
import re
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])

from common import mixed_clients  # noqa: E402 - sys.path is set above
from common.mixed_beside import follow, run_jobs  # noqa: E402
from common.mixed_wire import Checksum, Progress  # noqa: E402
from support.serve.http_client import samples  # noqa: E402
from support.serve.serving import Serving  # noqa: E402

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess
    from multiprocessing.queues import Queue

SAMPLE_INTERVAL_SECONDS = 5.0
MAX_FLAT_SLOPE = 0.5  # MB per minute
COMMITS = ("OffsetCommit", "TxnOffsetCommit", "HTTP commits accepted", "HTTP commits refused")
FETCHES = ("OffsetFetch", "HTTP offsets")
EXPECTED_LOG_LINES = re.compile(r"Listening on|Serving HTTP on|Serving \d+ offsets|Refreshed the snapshot")
PROCESSES = get_context("spawn")


@dataclass
class Results:
    """The results of a run: counts and latencies by minute, samples of memory, and wrong answers."""

    counts: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    latencies: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    memory: list[tuple[float, float]] = field(default_factory=list)
    """Minutes since the start, and MB."""
    wrong_answers: list[str] = field(default_factory=list)
    checksums: dict[str, dict[int, Checksum]] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, progress: Progress, minute: int) -> None:
        self.counts[minute] += progress.counts
        self.latencies[minute] += progress.latencies
        self.wrong_answers += progress.wrong_answers
        if progress.checksums is not None:
            self.checksums[progress.process] = progress.checksums

    @property
    def slope(self) -> float:
        """Growth of memory in MB per minute, by least squares over the last two thirds of the run."""
        samples = self.memory[len(self.memory) // 3 :]
        return statistics.linear_regression(*zip(*samples, strict=True)).slope if len(samples) > 1 else 0.0

    def rows(self) -> Iterator[tuple[str, ...]]:
        for minute in sorted(self.counts):
            counts, seconds = self.counts[minute], min(60.0, max(self.seconds - 60 * minute, 1.0))
            memory = [mb for minutes, mb in self.memory if int(minutes) == minute]
            yield (
                str(minute + 1),
                f"{statistics.fmean(memory):.1f}" if memory else "",
                f"{sum(counts[name] for name in COMMITS) / seconds:,.0f}",
                f"{sum(counts[name] for name in FETCHES) / seconds:,.0f}",
                f"{percentile_99(self.latencies[minute]):.1f}",
                str(counts["snapshot refreshes"]),
                str(counts["segments deleted"]),
            )

    def check_log(self) -> None:
        """Compare the offsets that the follower read with those that the clients committed."""
        read = self.checksums.pop("follower", {})
        for process, checksums in self.checksums.items():
            for client, committed in checksums.items():
                logged = read.get(client, Checksum())
                if logged != committed:
                    self.wrong_answers.append(f"{process} committed {committed}, but the log contains {logged}")


def percentile_99(latencies: list[float]) -> float:
    """Return the 99th percentile in milliseconds."""
    return sorted(latencies)[len(latencies) * 99 // 100] * 1e3 if latencies else 0.0


class Load:
    """The processes that load a server, and their results."""

    def __init__(self, serving: Serving, lake: Path, log: Path, arguments: argparse.Namespace) -> None:
        self._serving, self._lake, self._log, self._options = serving, lake, log, arguments
        self._reports: Queue[Progress] = PROCESSES.Queue()
        self._http = serving.http if "//" in serving.http else f"http://{serving.http}"
        self._done = PROCESSES.Event()
        self._jobs: SpawnProcess | None = None
        self._results, self._line_count = Results(), 0
        self._start = time.monotonic()

    def run(self) -> Results:
        seconds = self._options.minutes * 60
        bootstrap = self._serving.bootstrap
        clients = [
            self._process(mixed_clients.run, number, bootstrap, self._http, seconds)
            for number in range(self._options.clients)
        ]
        follower = self._process(follow, bootstrap, self._options.log_partitions, self._done)
        for process in (*clients, follower):
            process.start()
        next_jobs = self._start + self._options.every
        while any(client.is_alive() for client in clients):
            self._collect(SAMPLE_INTERVAL_SECONDS)
            self._sample()
            if time.monotonic() >= next_jobs and (self._jobs is None or not self._jobs.is_alive()):
                next_jobs = time.monotonic() + self._options.every
                self._jobs = self._process(run_jobs, str(self._lake), str(self._log))
                self._jobs.start()
        self._results.seconds = min(time.monotonic() - self._start, seconds)
        self._done.set()
        while follower.is_alive() or (self._jobs is not None and self._jobs.is_alive()):
            self._collect(1.0)
        self._collect(1.0)
        self._sample()
        self._results.check_log()
        return self._results

    def _process(self, target: Callable[..., None], *arguments: Any) -> "SpawnProcess":
        return PROCESSES.Process(target=target, args=(*arguments, self._reports), daemon=True)

    def _minute(self) -> int:
        return min(int((time.monotonic() - self._start) / 60), max(int(self._options.minutes) - 1, 0))

    def _collect(self, seconds: float) -> None:
        """Collect the reports of the next seconds."""
        end = time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0:
            try:
                self._results.add(self._reports.get(timeout=remaining), self._minute())
            except queue.Empty:
                break

    def _sample(self) -> None:
        """Record the memory of the server, its connections, and its new log lines."""
        results, minute = self._results, self._minute()
        if self._serving.process.poll() is not None:
            return  # the clients and the exit code report it
        memory = resident(self._serving.process.pid)
        results.memory.append(((time.monotonic() - self._start) / 60, memory))
        lines, self._line_count = self._serving.said[self._line_count :], len(self._serving.said)
        results.counts[minute]["snapshot refreshes"] += sum("Refreshed the snapshot" in line for line in lines)
        results.wrong_answers += [
            f"unexpected log line of the server: {line}" for line in lines if not EXPECTED_LOG_LINES.search(line)
        ]
        connections = samples(self._http)["offsetlake_connections"]
        recent = percentile_99(results.latencies[minute][-10_000:])
        print_line(
            f"{time.monotonic() - self._start:5.0f} s  {memory:6.1f} MB  {connections:3.0f} connections  "
            f"p99 {recent:5.1f} ms  {len(results.wrong_answers)} wrong answers"
        )


def resident(process: int) -> float:
    """Return the resident memory of a process in MB."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024


def report(results: Results) -> str:
    header = ("minute", "resident, MB", "commits/s", "fetches/s", "commit latency, 99th percentile, ms")
    header += ("snapshot refreshes", "segments deleted")
    lines = [f"| {' | '.join(row)} |" for row in (header, ("---",) * len(header), *results.rows())]
    counts = sum(results.counts.values(), Counter[str]())
    totals = [f"| {name} | {number:,} |" for name, number in sorted(counts.items())]
    flat = "flat" if abs(results.slope) < MAX_FLAT_SLOPE else "not flat"
    summary = f"Memory in the last two thirds: {results.slope:+.2f} MB per minute, {flat}. "
    summary += f"Wrong answers: {len(results.wrong_answers)}."
    return "\n".join((*lines, "", summary, "", "| request or event | count |", "| --- | --- |", *totals))


def print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument(
        "--log-partitions", type=int, default=4, help="few, so that segments fill up and can be deleted"
    )
    parser.add_argument("--every", type=float, default=30, help="seconds between two job cycles")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        lake, log = Path(temporary, "lake"), Path(temporary, "log")
        settings = {"log_partitions": arguments.log_partitions, "http": ["127.0.0.1", 0], "commits_recorded": 0.01}
        with Serving(lake, log, **settings) as serving:
            results = Load(serving, lake, log, arguments).run()
        if serving.process.returncode:
            results.wrong_answers.append(f"the server exited with code {serving.process.returncode}")
    text = report(results)
    print_line("\n".join((text, "", *results.wrong_answers)))
    command = f"`python benchmarks/mixed_load.py --minutes {arguments.minutes:g}`, {arguments.clients} clients"
    page = f"# Mixed load\n\n{command} and a consumer of the log, jobs every {arguments.every:g} s.\n\n{text}\n"
    (ROOT / "benchmarks" / "results" / "mixed_load.md").write_text(page, encoding="utf-8")
    sys.exit(1 if results.wrong_answers else 0)


if __name__ == "__main__":
    main()
