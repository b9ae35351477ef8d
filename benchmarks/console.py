"""Durations, sizes and memory of the console over a lake of one year, measured by HTTP; written to benchmarks/results/console.md.

python benchmarks/console.py                 writes the lake of `common/console_lake.py` and measures all, about a quarter of an hour
python benchmarks/console.py --lake DIR      measures an existing lake of `common/console_lake.py`
python benchmarks/console.py --only /group   measures the routes whose name contains the text

The lake is measured as the daily `offsetlake maintain` leaves it. For each route the first request is `cold`. The
others (`warm`) are for different groups, partitions, pages and instants. Then 20 people visit all routes at once: each
reads a page for 1 to 3 seconds before the next request, and for comparison they request pages without pauses, which
measures how many pages the machine can render. A page whose answer takes longer says so and loads itself again:
`complete` is the time until the answer is shown. The memory is the sum of the proportional set sizes (PSS) of all
processes of the console, in which each page that processes share counts once, sampled every 50 ms.
"""

import argparse
import http.client
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

from common.console_lake import year_lake  # noqa: E402 - sys.path is set above
from common.console_year import EVERY_BUSY, TOPICS, Year  # noqa: E402
from common.process_memory import Memory, cpu_seconds  # noqa: E402
from offsetlake.lake.lake import Lake  # noqa: E402
from offsetlake.util.times import to_iso  # noqa: E402

WARM, MIN_WARM, PEOPLE, VISITS_PER_PERSON = 20, 3, 20, 12
PAUSE_SECONDS = (1.0, 3.0)
MAX_SECONDS = 40  # for the warm requests of a route; those of a slow route are fewer
MAX_COLD_MS, MAX_WARM_MS, MAX_SHARED_MS = 1_000, 300, 1_000
MAX_RESPONSE_BYTES, MAX_MEMORY_MB = 1_000_000, 500

_POLICY = '[retention]\ndefault = "{days}d"'
_SQL = "SELECT topic, count(*) AS offsets FROM offsets WHERE group_id = '{group}' GROUP BY topic"


class Addresses:
    """Addresses of the console over a lake, different at each call."""

    def __init__(self, lake: Lake) -> None:
        groups = lake.query("SELECT count(*) AS n FROM groups", "groups")["n"][0].as_py()
        self.year = Year(int(groups) - 2)
        bounds = lake.query(
            "SELECT min(log_timestamp) AS a, max(log_timestamp) AS b FROM offset_commits", "offset_commits"
        )
        self.first, self.last = bounds["a"][0].as_py(), bounds["b"][0].as_py()
        self.random = random.Random(1)
        clicks = lake.query(
            "SELECT log_partition, log_offset FROM offset_commits WHERE group_id = 'clickstream' AND log_offset % 97 = 0",
            "offset_commits",
        )
        self.clicks = [f"{row['log_partition']}:{row['log_offset']}" for row in clicks.to_pylist()]

    def instant(self) -> str:
        """Return an instant of the year after its first week."""
        return to_iso(self.random.randint(self.first + 7 * 86_400_000, self.last))

    def group(self) -> int:
        """Return the number of any group."""
        return self.random.randrange(self.year.count)

    def busy(self) -> int:
        """Return the number of a busy group."""
        return self.random.randrange(self.year.count // EVERY_BUSY) * EVERY_BUSY

    def partition(self, path: str, group: int) -> str:
        """Return the address of a page about a partition."""
        topic = self.year.topics[group * 7 % TOPICS]
        selection = {"group": self.year.names[group], "topic": topic, "partition": self.random.randrange(10)}
        return f"{path}?{urlencode(selection)}"

    def clickstream(self, path: str, parameter: str) -> str:
        """Return the address of a page about the partition with a million commits, with one of its records."""
        record = self.random.choice(self.clicks)
        return f"{path}?group=clickstream&topic=clicks&partition=0&{parameter}={record}"

    def routes(self) -> dict[str, Callable[[], str]]:
        """Return a function for each kind of page, which returns the address of another page of this kind."""
        names = self.year.names
        pages = self.random.randint
        clicks = "/series?group=clickstream&topic=clicks&partition=0"
        return {
            "/ newest": lambda: f"/?page={pages(1, 1000)}",
            "/ search": lambda: f"/?q={names[self.group()][-4:]}",
            "/ sorted": lambda: f"/?sort=-offsets&state={self.random.choice(('Empty', 'Stable'))}&page={pages(1, 300)}",
            "/ at an instant": lambda: f"/?{urlencode({'at': self.instant()})}",
            "/group newest": lambda: f"/group?{urlencode({'group': names[self.group()]})}",
            "/group busy": lambda: f"/group?{urlencode({'group': names[self.busy()]})}",
            "/group at an instant": lambda: f"/group?{urlencode({'group': names[self.group()], 'at': self.instant()})}",
            "/partition": lambda: self.partition("/partition", self.busy()),
            "/partition clickstream": lambda: self.clickstream("/partition", "before"),
            "/partition set back": lambda: self.partition("/partition", self.busy()) + "&event=reset_back",
            "/series": lambda: self.partition("/series", self.busy()),
            "/series clickstream": lambda: f"{clicks}&{urlencode({'since': self.instant()})}",
            "/step clickstream": lambda: self.clickstream("/step", "record"),
            "/search": lambda: f"/search?q={names[self.group()][3:-3]}",
            "/lag": lambda: f"/lag?page={pages(1, 500)}",
            "/committers": lambda: f"/committers?page={pages(1, 10)}",
            "/review": lambda: f"/review?page={pages(1, 2)}",
            "/attention": lambda: "/attention",
            "/report": lambda: "/report",
            "/checks": lambda: "/checks",
            "/runs": lambda: f"/runs?page={pages(1, 4)}",
            "/what-if": lambda: f"/what-if?{urlencode({'policy': _POLICY.format(days=pages(1, 30))})}",
            "/client": lambda: f"/client?client=client-{self.busy() % 2000}",
            "/sql": lambda: f"/sql?{urlencode({'statement': _SQL.format(group=names[self.busy()])})}",
        }


@dataclass
class Route:
    """The measurements of a kind of page, in ms and bytes."""

    cold_ms: float = 0.0
    warm_ms: list[float] = field(default_factory=list)
    shared_ms: list[float] = field(default_factory=list)
    saturated_ms: list[float] = field(default_factory=list)
    complete_ms: list[float] = field(default_factory=list)
    largest: int = 0
    failures: int = 0

    def request(self, port: int, address: str) -> float:
        """Request a page until it has its answer, and return the ms until the last byte of the first response."""
        start = time.perf_counter()
        again = self._request(port, address)
        first = time.perf_counter() - start
        while again:
            time.sleep(again)
            again = self._request(port, address)
        self.complete_ms.append((time.perf_counter() - start) * 1000)
        return first * 1000

    def _request(self, port: int, address: str) -> int:
        """Request a page, and return the seconds after which it loads itself again, 0 if it has its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        connection.request("GET", address)
        response = connection.getresponse()
        self.largest = max(self.largest, len(response.read()))
        if response.status != 200:
            self.failures += 1
            print(f"{response.status} {address}", file=sys.stderr)
        connection.close()
        return int(response.headers.get("Retry-After", "0"))

    def cells(self) -> list[str]:
        """Return the cells of the row of the table."""
        shared = percentile(self.shared_ms, 95)
        met = (
            self.cold_ms <= MAX_COLD_MS
            and percentile(self.warm_ms, 95) <= MAX_WARM_MS
            and shared <= MAX_SHARED_MS
            and self.largest <= MAX_RESPONSE_BYTES
        )
        warm = [f"{percentile(self.warm_ms, part):,.0f}" for part in (50, 95, 100)]
        verdict = f"**{self.failures} failed**" if self.failures else "yes" if met else "**no**"
        return [
            f"{self.cold_ms:,.0f}",
            *warm,
            f"{shared:,.0f}",
            f"{percentile(self.saturated_ms, 95):,.0f}",
            f"{percentile(self.complete_ms, 95):,.0f}",
            f"{self.largest / 1000:,.0f}",
            verdict,
        ]


def percentile(values: list[float], part: int) -> float:
    return sorted(values)[min(len(values) * part // 100, len(values) - 1)] if values else 0.0


@contextmanager
def console(lake: Path) -> Iterator[tuple[int, Memory]]:
    """Serve the console of a lake; yield its port, and its memory."""
    command = [sys.executable, "-m", "offsetlake.cli", "console", "--lake", str(lake), "--http", "127.0.0.1:0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "lib")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        memory = Memory(process.pid)
        memory.start()
        try:
            yield int(re.findall(r":([0-9]+)", line)[-1]), memory
        finally:
            memory.done.set()
            memory.join()
            process.terminate()


def measure(lake: Path, only: str) -> str:
    """Return the table."""
    routes = {name: address for name, address in Addresses(Lake.open(lake)).routes().items() if only in name}
    results = {name: Route() for name in routes}
    with console(lake) as (port, memory):
        for name, address in routes.items():
            route = results[name]
            start = cpu_seconds(memory.pid)
            route.cold_ms = route.request(port, address())
            cold = cpu_seconds(memory.pid) - start
            while len(route.warm_ms) < MIN_WARM or (
                len(route.warm_ms) < WARM and sum(route.complete_ms) < MAX_SECONDS * 1000
            ):
                route.warm_ms.append(route.request(port, address()))
            warm = (cpu_seconds(memory.pid) - start - cold) / max(len(route.warm_ms), 1)
            used = f"CPU {cold:.2f} s cold, {warm:.2f} s warm; peak {memory.peak_bytes >> 20} MB"
            print(f"{name}: {' | '.join(route.cells())} {used}", file=sys.stderr, flush=True)
        _visit(results, routes, port, PAUSE_SECONDS, lambda route: route.shared_ms)
        _visit(results, routes, port, (0, 0), lambda route: route.saturated_ms)
        megabytes = memory.peak_bytes >> 20
    titles = "page|cold, ms|warm p50|p95|max|p95 of {PEOPLE} people|without pauses|p95 complete|largest, kB|met"
    header = titles.format(PEOPLE=PEOPLE).split("|")
    lines = [header, ["---"] * len(header), *([name, *route.cells()] for name, route in results.items())]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    limit = "" if megabytes <= MAX_MEMORY_MB else f", **more than {MAX_MEMORY_MB} MB**"
    return f"{table}\n\nPeak memory of all processes of the console: {megabytes} MB{limit}."


def _visit(
    results: dict[str, Route],
    routes: dict[str, Callable[[], str]],
    port: int,
    pause_seconds: tuple[float, float],
    durations: Callable[[Route], list[float]],
) -> None:
    """Request all routes equally often as PEOPLE at once, with pauses, and add the ms of each to some durations."""
    rounds, chance = PEOPLE * VISITS_PER_PERSON // len(routes), random.Random(2)
    visits = [(name, routes[name](), chance.uniform(*pause_seconds)) for _ in range(rounds) for name in routes]
    chance.shuffle(visits)

    def visit(name: str, address: str, pause: float) -> None:
        durations(results[name]).append(results[name].request(port, address))
        time.sleep(pause)

    with ThreadPoolExecutor(PEOPLE) as people:
        list(people.map(lambda each: visit(*each), visits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lake", type=Path)
    parser.add_argument("--groups", type=int, default=100_000, help="groups of the lake to write")
    parser.add_argument("--only", default="")
    parser.add_argument("--to", type=Path, default=ROOT / "benchmarks" / "results" / "console.md")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.lake or _maintained(Path(folder, "lake"), arguments.groups)
        lake = Lake.open(path)
        counts = [f"{lake.count(table):,} {noun}" for table, noun in _COUNTED.items()]
        table = measure(path, arguments.only)
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    targets = (
        f"Limits: cold {MAX_COLD_MS} ms, warm {MAX_WARM_MS} ms at the 95th percentile, {MAX_SHARED_MS} ms with "
        f"{PEOPLE} people at once, a response {MAX_RESPONSE_BYTES // 1000:,} kB, memory {MAX_MEMORY_MB} MB."
    )
    text = f"# The console\n\n`python benchmarks/console.py`, {machine}: one year, {', '.join(counts)}. {targets}\n\n{table}\n"
    print(text)
    if not arguments.only:
        arguments.to.write_text(text, encoding="utf-8")


def _maintained(path: Path, groups: int) -> Path:
    """Write a lake of `common/console_lake.py`, and return its path after `offsetlake maintain`."""
    year_lake(path, groups)
    command = [sys.executable, "-m", "offsetlake.cli", "maintain", "--lake", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(ROOT / "lib")})
    return path


_COUNTED = {"groups": "groups", "offsets": "offsets", "offset_commits": "commits"}


if __name__ == "__main__":
    main()
