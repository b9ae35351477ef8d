"""Time, peak memory and exit code of every command over lakes of 1 M and 20 M commits, written to benchmarks/results/memory.md.

python benchmarks/memory.py                     1 M and 20 M commits
python benchmarks/memory.py --commits 200000    one small lake, to test the script
python benchmarks/memory.py --commits 1000000 100000000 --only gate
                                                the jobs, the gate, and the commands whose row contains the text
python benchmarks/memory.py --folder DIR        keeps the lakes there, and uses existing ones; the table then
                                                lacks the jobs that created them

Each command runs in a separate process. Its peak is the high-water mark of resident memory (VmHWM) of the largest
process in its process tree, including Spark's JVM. The table is rewritten after each command, so that an interrupted
benchmark keeps its results.
"""

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

from common.process_memory import process_tree  # noqa: E402 - sys.path is set above
from offsetlake.errors import NotEnoughMemory  # noqa: E402
from offsetlake.lake.lake import Lake  # noqa: E402
from offsetlake.lake.sql.views import views  # noqa: E402
from offsetlake.pipeline.ingest.log_ends import record  # noqa: E402
from run import _append  # noqa: E402
from support.oracle.bulk import SPAN, START_TIME, write_bulk_log  # noqa: E402

GROUPS, TOPICS, PARTITIONS = 20_000, 10, 5
NEW_COMMITS = 100_000  # since the last run of the gate
SAMPLE_INTERVAL_SECONDS = 0.02
MAX_SECONDS = 600
MAX_QUERY_MB, MAX_GATE_MB, MAX_GATE_SLOWDOWN = 1000, 500, 2
COMMAND = [sys.executable, "-m", "offsetlake.cli"]
INSTANT, LATER = "2023-12-01T00:00", "2023-12-02T00:00"
JOB, GATE, QUERY = "job", "gate", "query"
REBUILD = "`rebuild`"
SQL = (
    "SELECT group_id, count(*) AS commits FROM offset_commits GROUP BY group_id ORDER BY commits DESC LIMIT 20",
    "SELECT group_id, count(*) AS steps FROM commit_steps GROUP BY group_id ORDER BY steps DESC LIMIT 20",
    "SELECT a.group_id FROM offset_commits AS a JOIN offset_commits AS b ON a.committed_offset = b.committed_offset",
)


@dataclass(frozen=True)
class Run:
    """One run of a command; `first_line` is the time until it first wrote to standard error, in seconds."""

    seconds: float
    peak_mb: int
    exit_code: int | None  # None: timeout
    first_line: float | None
    last_line: str

    @property
    def succeeded(self) -> bool:
        """Whether the command succeeded, or was refused because it needs too much memory."""
        return self.exit_code in (0, NotEnoughMemory.exit_code)


@dataclass
class Command:
    """A command, and its runs by the number of commits in the lake."""

    kind: str
    runs_by_size: dict[int, Run] = field(default_factory=dict)

    def verdict(self) -> str:
        runs = [*self.runs_by_size.values()]
        if self.kind == JOB:
            return "ok" if all(run.exit_code == 0 for run in runs) else "**fails**"
        if not all(run.succeeded for run in runs):
            return "**fails**"
        limit = MAX_GATE_MB if self.kind == GATE else MAX_QUERY_MB
        if max(run.peak_mb for run in runs) > limit:
            return f"**above {limit:,} MB**"
        if self.kind == GATE and runs[-1].seconds > MAX_GATE_SLOWDOWN * runs[0].seconds:
            return "**too slow**"
        refused = any(run.exit_code for run in runs)
        return "ok: refused" if refused else "ok"


class Results:
    """All measurements, and the file with their table."""

    def __init__(self, sizes: list[int], file: Path) -> None:
        self._sizes, self._file = sizes, file
        self._commands: dict[str, Command] = {}

    def measure(self, size: int, kind: str, name: str, *arguments: str) -> None:
        run = measure_command(*arguments)
        self._commands.setdefault(name, Command(kind)).runs_by_size[size] = run
        print(f"{size:>11,}  {run.seconds:6.1f} s  {run.peak_mb:5} MB  exit code {run.exit_code}  {name}", flush=True)
        if not run.succeeded:
            print(f"             {run.last_line}", flush=True)
        self._file.write_text(self._text(), encoding="utf-8")

    def _text(self) -> str:
        headings = [f"{size / 1e6:g} M: seconds | peak MB | exit code | first line" for size in self._sizes]
        lines = [
            f"| command | {' | '.join(headings)} | verdict |",
            f"|---|{'---:|---:|---:|---:|' * len(headings)}---|",
        ]
        for name, command in self._commands.items():
            cells = [_cells(command.runs_by_size.get(size)) for size in self._sizes]
            escaped = name.replace("|", "\\|")
            lines.append(f"| {escaped} | {' | '.join(cells)} | {command.verdict()} |")
        machine = (
            f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
        )
        return (
            f"# Memory\n\nMeasured by `python benchmarks/memory.py`, {machine}: lakes of {GROUPS:,} groups and up to "
            f"{GROUPS * TOPICS * PARTITIONS:,} offsets. The peak is the high-water mark of resident memory (VmHWM) of "
            "the largest process of the command; for `ingest`, `compact` and `rebuild` that is Spark's JVM, whose "
            f"heap size is configured. `first line` is the time until the command wrote its first line of progress, in "
            f"seconds. A query is ok if it needs at most {MAX_QUERY_MB:,} MB and exits with 0, or with "
            f"{NotEnoughMemory.exit_code} and an error message. The gate is ok if it needs at most {MAX_GATE_MB} MB, and at "
            f"most {MAX_GATE_SLOWDOWN} times as long for the largest lake as for the smallest. A command that does not "
            f"finish within {MAX_SECONDS} s fails.\n\n" + "\n".join(lines) + "\n"
        )


def _cells(run: Run | None) -> str:
    if run is None:
        return " | | | "
    code = "timeout" if run.exit_code is None else run.exit_code
    first = "" if run.first_line is None else f"{run.first_line:.1f}"
    return f"{run.seconds:.1f} | {run.peak_mb:,} | {code} | {first}"


def measure_command(*arguments: str) -> Run:
    """Run a command until it ends, at most MAX_SECONDS."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "lib")}
    start, peak, first = time.perf_counter(), 0, None
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment,
            cwd=ROOT,
            start_new_session=True,
        ) as process,
    ):
        while (code := process.poll()) is None:
            peak = max(peak, *map(high_water_kb, process_tree(process.pid)))
            seconds = time.perf_counter() - start
            if first is None and os.fstat(errors.fileno()).st_size:
                first = seconds
            if seconds > MAX_SECONDS:
                os.killpg(process.pid, signal.SIGKILL)
                break
            time.sleep(SAMPLE_INTERVAL_SECONDS)
        seconds = time.perf_counter() - start
        errors.seek(0)
        last = (errors.read().splitlines() or [""])[-1]
    return Run(seconds, round(peak * 1024 / 1e6), code, first, last)


def high_water_kb(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:  # the process has ended
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), 0)


def create_lake(results: Results, folder: Path, commits: int) -> None:
    """Create a lake with the given number of commits, and NEW_COMMITS more that the gate has not checked yet."""
    log, lake, more = folder / "log", str(folder / "lake"), folder / "more"
    after_compact = ("check", "--suite", "after_compact", "--lake", lake)
    write_bulk_log(log, commits, groups=GROUPS, topics=TOPICS, partitions=PARTITIONS)
    results.measure(commits, JOB, "`ingest`", "ingest", "--lake", lake, "--log", str(log))
    record_ends(folder / "lake", commits, START_TIME + SPAN)
    results.measure(commits, JOB, "`compact`", "compact", "--lake", lake)
    results.measure(commits, QUERY, "`check --suite after_compact`, everything new", *after_compact)
    write_bulk_log(more, NEW_COMMITS, groups=GROUPS, topics=TOPICS, partitions=PARTITIONS, seed=7)
    _append(log, more)
    shutil.rmtree(more)
    results.measure(commits, JOB, f"`ingest` of {NEW_COMMITS:,} more", "ingest", "--lake", lake, "--log", str(log))
    record_ends(folder / "lake", commits, START_TIME + SPAN + 60_000)
    results.measure(commits, JOB, f"`compact` of {NEW_COMMITS:,} more", "compact", "--lake", lake)
    results.measure(
        commits, GATE, f"`check --gate --suite after_compact`, {NEW_COMMITS:,} new", *after_compact, "--gate"
    )
    shutil.rmtree(log)


def record_ends(path: Path, commits: int, read_ms: int) -> None:
    """Record log end offsets of the topics, which `lag` requires and a log in a folder does not contain."""
    lake = Lake(path)
    run = lake.query("SELECT max(run_id) AS run FROM runs WHERE job = 'ingest'", "runs")["run"][0].as_py()
    partitions = [(f"topic-{topic}", partition) for topic in range(TOPICS) for partition in range(PARTITIONS)]
    record(lake, run, [[*partition, 0, commits * 10, read_ms] for partition in partitions])


def queries(folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name and the arguments of every command that only reads."""
    key_options = ("--group", "group-00001", "--topic", "topic-1", "--partition", "1")
    yield "`check --full`, all suites", ("check", "--full")
    yield "`report`", ("report", "--to", str(folder / "report.html"))
    yield "`report --group 'group-0000*'`", ("report", "--group", "group-0000*", "--to", str(folder / "report.html"))
    yield "`offsets --as-of`, 20 rows", ("offsets", "--as-of", INSTANT, "--limit", "20")
    yield "`offsets --as-of`, all rows as CSV", ("offsets", "--as-of", INSTANT, "--format", "csv")
    yield "`groups --as-of`", ("groups", "--as-of", INSTANT)
    yield "`diff`", ("diff", "--from", INSTANT, "--to", LATER, "--limit", "20")
    for name in sorted(views()):
        yield f"`audit {name}`", ("audit", name, "--limit", "20")
    yield "`audit regressions --group group-00001`", ("audit", "regressions", "--group", "group-00001")
    for statement in SQL:
        yield f"`sql '{statement}'`", ("sql", statement, "--limit", "20")
    yield "`lag`", ("lag",)
    yield "`expire --what-if`", ("expire", "--what-if")
    yield "`offsets`, all rows as CSV", ("offsets", "--format", "csv")
    yield "`groups`", ("groups",)
    yield "`history`", ("history", *key_options)
    yield "`tombstones`", ("tombstones",)
    yield "`transactions`", ("transactions",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, nargs="+", default=[1_000_000, 20_000_000])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--to", type=Path, default=ROOT / "benchmarks" / "results" / "memory.md")
    arguments = parser.parse_args()
    results = Results(arguments.commits, arguments.to)
    with tempfile.TemporaryDirectory() as temporary:
        for commits in arguments.commits:
            folder = (arguments.folder or Path(temporary)).resolve() / str(commits)
            if not (folder / "made").exists():
                create_lake(results, folder, commits)
                (folder / "made").touch()
            for name, command in queries(folder):
                if arguments.only in name:
                    results.measure(commits, QUERY, name, *command, "--lake", str(folder / "lake"))
            if arguments.only in REBUILD:
                results.measure(commits, JOB, REBUILD, "rebuild", "--lake", str(folder / "lake"))


if __name__ == "__main__":
    main()
