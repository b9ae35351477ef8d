"""Latencies of a Kafka client, and CPU time of `offsetlake serve`, with and without visitors of its console.

python benchmarks/console_beside.py                 two minutes on two cores; writes benchmarks/results/console_beside.md
python benchmarks/console_beside.py --seconds 5     a short form, which only prints the table

One client fetches and commits an offset in turn on one connection, with pauses of 2 ms. Meanwhile USERS people load
pages, one after the other: at `/console` of the same process or, to see what the use of the CPUs alone costs, of
`offsetlake console`. The CPU time is that of the serving process alone, without the process of the console.
"""

import argparse
import http.client
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])

from common.frames import commit_frame, fetch_frame  # noqa: E402
from common.loading import resident  # noqa: E402
from console import percentile  # noqa: E402 - sys.path is set above
from support.console.served_by_serve import serving_console  # noqa: E402
from support.serve.wire_client import WireClient  # noqa: E402

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

USERS = 6
SECONDS = 30.0
PAUSE_SECONDS = 0.002
PAGES = ("/", "/group?group=billing", "/static/uplot-1.6.32.min.js", "/runs", "/search?q=bil", "/lag")
HEADER = ("visitors", "pages/s", "fetch ms, median", "99 %", "commit ms, median", "99 %", "CPU ms/s", "CPU ms/page")


class Load(NamedTuple):
    """What was measured: latencies in ms, CPU time of the serving process in s, and the number of loaded pages."""

    fetches: list[float]
    commits: list[float]
    cpu_seconds: float
    pages: int


def visit(port: int, base: str, pages: "Synchronized[int]") -> None:
    """Load pages as USERS people until the process is terminated."""

    def load() -> None:
        while True:
            for page in PAGES:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
                connection.request("GET", base + page)
                assert connection.getresponse().read()
                connection.close()
                with pages.get_lock():
                    pages.value += 1

    for _ in range(USERS):
        threading.Thread(target=load).start()


@contextmanager
def visitors(port: int, base: str) -> "Iterator[Synchronized[int]]":
    """Run visitors in a process of their own, and yield the number of pages that they have loaded."""
    pages = multiprocessing.Value("l", 0)
    process = multiprocessing.get_context("fork").Process(target=visit, args=(port, base, pages))
    process.start()
    try:
        yield pages
    finally:
        process.kill()
        process.join()


@contextmanager
def separate_console(lake: Path) -> Iterator[int]:
    """Run `offsetlake console` and yield its port."""
    command = [sys.executable, "-m", "offsetlake.cli", "console", "--lake", str(lake), "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        yield int(process.stderr.readline().rpartition(":")[0].rpartition(":")[2].partition("/")[0])
        process.terminate()


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(bootstrap: str, process: int, seconds: float, pages: "Synchronized[int] | None" = None) -> Load:
    """Fetch and commit for some seconds."""
    client = WireClient(bootstrap)
    frames = fetch_frame("bench", "t", [0]), commit_frame("bench", "t", [0])
    latencies: tuple[list[float], list[float]] = ([], [])
    cpu, loaded, end = cpu_seconds(process), 0 if pages is None else pages.value, time.perf_counter() + seconds
    while time.perf_counter() < end:
        for frame, waits in zip(frames, latencies, strict=True):
            began = time.perf_counter()
            client.socket.sendall(frame)
            client.receive()
            waits.append(1000 * (time.perf_counter() - began))
            time.sleep(PAUSE_SECONDS)
    return Load(*latencies, cpu_seconds(process) - cpu, 0 if pages is None else pages.value - loaded)


def row(name: str, load: Load, seconds: float) -> tuple[str, ...]:
    """Return a row of the table."""
    waits = [f"{percentile(values, part):.2f}" for values in (load.fetches, load.commits) for part in (50, 99)]
    per_page = f"{1000 * load.cpu_seconds / load.pages:.2f}" if load.pages else ""
    return (name, f"{load.pages / seconds:,.0f}", *waits, f"{1000 * load.cpu_seconds / seconds:,.0f}", per_page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each row of the table")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as name, serving_console(Path(name)) as (serving, port):
        process, rows = serving.process.pid, []

        def add(label: str, pages: "Synchronized[int] | None" = None) -> None:
            rows.append(row(label, measure(serving.bootstrap, process, seconds, pages), seconds))

        add("none")
        with separate_console(Path(name) / "lake") as separate, visitors(separate, "") as pages:
            add("of `offsetlake console`", pages)
        with visitors(port, "/console") as pages:
            add("at `/console`", pages)
        add("none, afterwards")
        lines = [f"| {' | '.join(cells)} |" for cells in (HEADER, ("---",) * len(HEADER), *rows)]
        memory = f"Resident memory of `serve` afterwards: {resident(process) / 1e6:.0f} MB."
    print("\n".join([*lines, memory]))
    if seconds == SECONDS:
        title = "# Serving beside visitors of the console\n\n`python benchmarks/console_beside.py`"
        machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {USERS} visitors"
        text = "\n".join([f"{title}, {machine}.\n", *lines, "", memory, ""])
        (ROOT / "benchmarks" / "results" / "console_beside.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
