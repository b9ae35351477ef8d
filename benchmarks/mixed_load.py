"""A served log under all that can be asked of it at once, for ten minutes: no wrong answer, and memory stays flat.

python benchmarks/mixed_load.py                 prints as it goes, and writes benchmarks/mixed_load.md
python benchmarks/mixed_load.py --minutes 0.5   for so long; exit code 1 where an answer was wrong

Clients commit (plainly, in transactions, by HTTP under a condition), fetch, describe, list and delete, and compare each
answer with what they know (mixed_clients.py). A consumer follows the log; jobs read it into the lake and cut it, so that
the server takes over one snapshot after the other (mixed_beside.py). A wrong answer is also a commit refused, a
connection lost, a record of the log that is missing or comes twice, a job that fails, and a complaint of the server's.
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

import mixed_clients  # noqa: E402 - the paths come first
from mixed_beside import follow, look_after  # noqa: E402
from mixed_wire import Sums, Told  # noqa: E402
from support.serve.http_client import samples  # noqa: E402
from support.serve.serving import Serving  # noqa: E402

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess
    from multiprocessing.queues import Queue

SAMPLE_SECONDS = 5.0
FLAT = 0.5  # MB a minute
COMMITS = ("OffsetCommit", "TxnOffsetCommit", "HTTP commits taken", "HTTP commits refused")
FETCHES = ("OffsetFetch", "HTTP offsets")
EXPECTED = re.compile(r"Listening on|Serving HTTP on|Serving \d+ offsets|Refreshed the snapshot")
PROCESSES = get_context("spawn")


@dataclass
class Found:
    """What is known of a run: by minute what was done, and samples of memory."""

    asked: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    times: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    memory: list[tuple[float, float]] = field(default_factory=list)
    """Minutes since the beginning, and MB."""
    wrong: list[str] = field(default_factory=list)
    sums: dict[str, dict[int, Sums]] = field(default_factory=dict)
    seconds: float = 0.0

    def take(self, told: Told, minute: int) -> None:
        self.asked[minute] += told.asked
        self.times[minute] += told.times
        self.wrong += told.wrong
        if told.sums is not None:
            self.sums[told.who] = told.sums

    @property
    def slope(self) -> float:
        """MB a minute, by least squares over the last two thirds."""
        last = self.memory[len(self.memory) // 3 :]
        return statistics.linear_regression(*zip(*last, strict=True)).slope if len(last) > 1 else 0.0

    def rows(self) -> Iterator[tuple[str, ...]]:
        for minute in sorted(self.asked):
            asked, seconds = self.asked[minute], min(60.0, max(self.seconds - 60 * minute, 1.0))
            memory = [mb for at, mb in self.memory if int(at) == minute]
            yield (
                str(minute + 1),
                f"{statistics.fmean(memory):.1f}" if memory else "",
                f"{sum(asked[name] for name in COMMITS) / seconds:,.0f}",
                f"{sum(asked[name] for name in FETCHES) / seconds:,.0f}",
                f"{percentile(self.times[minute]):.1f}",
                str(asked["snapshots taken over"]),
                str(asked["segments cut"]),
            )

    def check_the_log(self) -> None:
        """Hold what the follower has read against what the clients say they have committed."""
        followed = self.sums.pop("follower", {})
        for who, sums in self.sums.items():
            for client, committed in sums.items():
                read = followed.get(client, Sums())
                if read != committed:
                    self.wrong.append(f"{who} has committed {committed}, in the log is {read}")


def percentile(times: list[float]) -> float:
    """Give the 99th, in ms."""
    return sorted(times)[len(times) * 99 // 100] * 1e3 if times else 0.0


class Load:
    """The processes of a run over a server."""

    def __init__(self, serving: Serving, lake: Path, log: Path, arguments: argparse.Namespace) -> None:
        self._serving, self._lake, self._log, self._of = serving, lake, log, arguments
        self._tells: Queue[Told] = PROCESSES.Queue()
        self._http = serving.http if "//" in serving.http else f"http://{serving.http}"
        self._done = PROCESSES.Event()
        self._jobs: SpawnProcess | None = None
        self._found, self._seen = Found(), 0
        self._begun = time.monotonic()

    def run(self) -> Found:
        seconds = self._of.minutes * 60
        at = self._serving.bootstrap
        clients = [
            self._process(mixed_clients.run, number, at, self._http, seconds) for number in range(self._of.clients)
        ]
        follower = self._process(follow, at, self._of.log_partitions, self._done)
        for process in (*clients, follower):
            process.start()
        next_jobs = self._begun + self._of.every
        while any(client.is_alive() for client in clients):
            self._collect(SAMPLE_SECONDS)
            self._sample()
            if time.monotonic() >= next_jobs and (self._jobs is None or not self._jobs.is_alive()):
                next_jobs = time.monotonic() + self._of.every
                self._jobs = self._process(look_after, str(self._lake), str(self._log))
                self._jobs.start()
        self._found.seconds = min(time.monotonic() - self._begun, seconds)
        self._done.set()
        while follower.is_alive() or (self._jobs is not None and self._jobs.is_alive()):
            self._collect(1.0)
        self._collect(1.0)
        self._sample()
        self._found.check_the_log()
        return self._found

    def _process(self, work: Callable[..., None], *arguments: Any) -> "SpawnProcess":
        return PROCESSES.Process(target=work, args=(*arguments, self._tells), daemon=True)

    def _minute(self) -> int:
        return min(int((time.monotonic() - self._begun) / 60), max(int(self._of.minutes) - 1, 0))

    def _collect(self, seconds: float) -> None:
        """Take what is told in the next seconds."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                self._found.take(self._tells.get(timeout=left), self._minute())
            except queue.Empty:
                break

    def _sample(self) -> None:
        """Look at the memory of the server, at its connections, and at what it has said."""
        found, minute = self._found, self._minute()
        if self._serving.process.poll() is not None:
            return  # clients tell that it is gone, and its exit code does
        memory = resident(self._serving.process.pid)
        found.memory.append(((time.monotonic() - self._begun) / 60, memory))
        said, self._seen = self._serving.said[self._seen :], len(self._serving.said)
        found.asked[minute]["snapshots taken over"] += sum("Refreshed the snapshot" in line for line in said)
        found.wrong += [f"the server says: {line}" for line in said if not EXPECTED.search(line)]
        connections = samples(self._http)["offsetlake_connections"]
        recent = percentile(found.times[minute][-10_000:])
        say(
            f"{time.monotonic() - self._begun:5.0f} s  {memory:6.1f} MB  {connections:3.0f} connections  "
            f"p99 {recent:5.1f} ms  {len(found.wrong)} wrong"
        )


def resident(process: int) -> float:
    """MB a process has in memory."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024


def report(found: Found) -> str:
    header = ("minute", "resident, MB", "commits a second", "fetches a second", "commit, 99 in 100, ms")
    header += ("snapshots taken over", "segments cut")
    lines = [f"| {' | '.join(row)} |" for row in (header, ("---",) * len(header), *found.rows())]
    asked = sum(found.asked.values(), Counter[str]())
    of_kinds = [f"| {name} | {number:,} |" for name, number in sorted(asked.items())]
    flat = "flat" if abs(found.slope) < FLAT else "not flat"
    about = f"Memory of the last two thirds: {found.slope:+.2f} MB a minute, {flat}. Wrong answers: {len(found.wrong)}."
    return "\n".join((*lines, "", about, "", "| asked or done | how often |", "| --- | --- |", *of_kinds))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--log-partitions", type=int, default=4, help="few, so that there are segments to cut")
    parser.add_argument("--every", type=float, default=30, help="seconds from one cycle of the jobs to the next")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        lake, log = Path(made, "lake"), Path(made, "log")
        settings = {"log_partitions": arguments.log_partitions, "http": ["127.0.0.1", 0], "commits_recorded": 0.01}
        with Serving(lake, log, **settings) as serving:
            found = Load(serving, lake, log, arguments).run()
        if serving.process.returncode:
            found.wrong.append(f"the server ended with {serving.process.returncode}")
    text = report(found)
    say("\n".join((text, "", *found.wrong)))
    how = f"`python benchmarks/mixed_load.py --minutes {arguments.minutes:g}`, {arguments.clients} clients"
    of = f"# Mixed load\n\n{how} and a follower of the log, jobs every {arguments.every:g} s.\n\n{text}\n"
    (ROOT / "benchmarks" / "mixed_load.md").write_text(of, encoding="utf-8")
    sys.exit(1 if found.wrong else 0)


if __name__ == "__main__":
    main()
