"""Time, peak memory and exit code of every command over lakes of 1 M and 20 M commits, written to benchmarks/memory.md.

python benchmarks/memory.py                     1 M and 20 M commits
python benchmarks/memory.py --commits 200000    one small lake, to see that it works
python benchmarks/memory.py --commits 1000000 100000000 --only gate
                                                the jobs and the gate, and no other command whose row lacks the text
python benchmarks/memory.py --folder DIR        keeps the lakes there, and uses those that are there; what making
                                                these took is then not in the table

Each command runs in a process of its own. Its peak is the high-water mark of resident memory (VmHWM) of the largest
process of its process tree; the JVM of Spark counts. The table is written anew after each command, so that a benchmark
that is interrupted leaves what it has measured.
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

from offsetlake.errors import NotEnoughMemory  # noqa: E402 - the paths come first
from offsetlake.lake.lake import Lake  # noqa: E402
from offsetlake.lake.views import views  # noqa: E402
from offsetlake.pipeline.ingest.log_ends import record  # noqa: E402
from run import _append  # noqa: E402
from support.oracle.bulk import SPAN, START_TIME, write_bulk_log  # noqa: E402

GROUPS, TOPICS, PARTITIONS = 20_000, 10, 5
NEW = 100_000  # commits that the gate finds new
INTERVAL_SECONDS = 0.02
MAX_SECONDS = 600
MAX_QUESTION_MB, MAX_GATE_MB, MAX_GATE_SLOWDOWN = 1000, 500, 2
COMMAND = [sys.executable, "-m", "offsetlake.cli"]
INSTANT, LATER = "2023-12-01T00:00", "2023-12-02T00:00"
JOB, GATE, QUESTION = "job", "gate", "question"
REBUILD = "`rebuild`"
SQL = (
    "SELECT group_id, count(*) AS commits FROM offset_commits GROUP BY group_id ORDER BY commits DESC LIMIT 20",
    "SELECT group_id, count(*) AS steps FROM commit_steps GROUP BY group_id ORDER BY steps DESC LIMIT 20",
    "SELECT a.group_id FROM offset_commits AS a JOIN offset_commits AS b ON a.committed_offset = b.committed_offset",
)


@dataclass(frozen=True)
class Measured:
    """One run of a command: `first_line` is after how many seconds it wrote to standard error first."""

    seconds: float
    peak_mb: int
    exit_code: int | None  # None: it did not end within MAX_SECONDS
    first_line: float | None
    last_line: str

    @property
    def ended_in_order(self) -> bool:
        return self.exit_code in (0, NotEnoughMemory.exit_code)


@dataclass
class Command:
    """A command, and its measurements by the number of commits in the lake."""

    kind: str
    of_size: dict[int, Measured] = field(default_factory=dict)

    def verdict(self) -> str:
        runs = [*self.of_size.values()]
        if self.kind == JOB:
            return "ok" if all(run.exit_code == 0 for run in runs) else "**fails**"
        if not all(run.ended_in_order for run in runs):
            return "**fails**"
        limit = MAX_GATE_MB if self.kind == GATE else MAX_QUESTION_MB
        if max(run.peak_mb for run in runs) > limit:
            return f"**above {limit:,} MB**"
        if self.kind == GATE and runs[-1].seconds > MAX_GATE_SLOWDOWN * runs[0].seconds:
            return "**too slow**"
        refused = any(run.exit_code for run in runs)
        return "ok: refused in a sentence" if refused else "ok"


class Results:
    """All measurements, and the file that has their table."""

    def __init__(self, sizes: list[int], file: Path) -> None:
        self._sizes, self._file = sizes, file
        self._commands: dict[str, Command] = {}

    def measure(self, size: int, kind: str, what: str, *arguments: str) -> None:
        run = measured(*arguments)
        self._commands.setdefault(what, Command(kind)).of_size[size] = run
        print(f"{size:>11,}  {run.seconds:6.1f} s  {run.peak_mb:5} MB  exit code {run.exit_code}  {what}", flush=True)
        if not run.ended_in_order:
            print(f"             {run.last_line}", flush=True)
        self._file.write_text(self._text(), encoding="utf-8")

    def _text(self) -> str:
        heads = [f"{size / 1e6:g} M: seconds | peak MB | exit code | first line" for size in self._sizes]
        lines = [f"| command | {' | '.join(heads)} | verdict |", f"|---|{'---:|---:|---:|---:|' * len(heads)}---|"]
        for what, command in self._commands.items():
            cells = [_cells(command.of_size.get(size)) for size in self._sizes]
            escaped = what.replace("|", "\\|")
            lines.append(f"| {escaped} | {' | '.join(cells)} | {command.verdict()} |")
        machine = (
            f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
        )
        return (
            f"# Memory\n\nMeasured by `python benchmarks/memory.py`, {machine}: lakes of {GROUPS:,} groups and up to "
            f"{GROUPS * TOPICS * PARTITIONS:,} offsets. The peak is the high-water mark of resident memory (VmHWM) of "
            "the largest process of the command; of `ingest`, `compact` and `rebuild` that is Spark's JVM, whose heap "
            f"is configured. `first line` is after how many seconds the command wrote its first line of progress. A "
            f"question is ok if it takes at most {MAX_QUESTION_MB:,} MB and ends with exit code 0, or in a sentence "
            f"with {NotEnoughMemory.exit_code}; the gate, if it takes at most {MAX_GATE_MB} MB and at most "
            f"{MAX_GATE_SLOWDOWN} times as long in the largest lake as in the smallest. A command that does not end "
            f"within {MAX_SECONDS} s fails.\n\n" + "\n".join(lines) + "\n"
        )


def _cells(run: Measured | None) -> str:
    if run is None:
        return " | | | "
    code = "timeout" if run.exit_code is None else run.exit_code
    first = "" if run.first_line is None else f"{run.first_line:.1f}"
    return f"{run.seconds:.1f} | {run.peak_mb:,} | {code} | {first}"


def measured(*arguments: str) -> Measured:
    """Run a command to its end, or for MAX_SECONDS."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "lib")}
    began, peak, first = time.perf_counter(), 0, None
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
            taken = time.perf_counter() - began
            if first is None and os.fstat(errors.fileno()).st_size:
                first = taken
            if taken > MAX_SECONDS:
                os.killpg(process.pid, signal.SIGKILL)
                break
            time.sleep(INTERVAL_SECONDS)
        taken = time.perf_counter() - began
        errors.seek(0)
        last = (errors.read().splitlines() or [""])[-1]
    return Measured(taken, round(peak * 1024 / 1e6), code, first, last)


def process_tree(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        try:
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text(encoding="ascii").split())
        except OSError:  # it has ended meanwhile
            continue
    return found


def high_water_kb(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:  # it has ended meanwhile
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), 0)


def make(results: Results, folder: Path, commits: int) -> None:
    """Make a lake of so many commits, and NEW more of which the gate has not been asked yet."""
    log, lake, more = folder / "log", str(folder / "lake"), folder / "more"
    after_compact = ("check", "--suite", "after_compact", "--lake", lake)
    write_bulk_log(log, commits, groups=GROUPS, topics=TOPICS, partitions=PARTITIONS)
    results.measure(commits, JOB, "`ingest`", "ingest", "--lake", lake, "--log", str(log))
    record_ends(folder / "lake", commits, START_TIME + SPAN)
    results.measure(commits, JOB, "`compact`", "compact", "--lake", lake)
    results.measure(commits, QUESTION, "`check --suite after_compact`, everything new", *after_compact)
    write_bulk_log(more, NEW, groups=GROUPS, topics=TOPICS, partitions=PARTITIONS, seed=7)
    _append(log, more)
    shutil.rmtree(more)
    results.measure(commits, JOB, f"`ingest` of {NEW:,} more", "ingest", "--lake", lake, "--log", str(log))
    record_ends(folder / "lake", commits, START_TIME + SPAN + 60_000)
    results.measure(commits, JOB, f"`compact` of {NEW:,} more", "compact", "--lake", lake)
    results.measure(commits, GATE, f"`check --gate --suite after_compact`, {NEW:,} new", *after_compact, "--gate")
    shutil.rmtree(log)


def record_ends(path: Path, commits: int, asked_ms: int) -> None:
    """Record where the topics end, which a log in a folder does not say and `lag` requires."""
    lake = Lake(path)
    run = lake.query("SELECT max(run_id) AS run FROM runs WHERE job = 'ingest'", "runs")["run"][0].as_py()
    places = [(f"topic-{topic}", partition) for topic in range(TOPICS) for partition in range(PARTITIONS)]
    record(lake, run, [[*place, 0, commits * 10, asked_ms] for place in places])


def questions(folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Name and arguments of every command that only reads."""
    of_key = ("--group", "group-00001", "--topic", "topic-1", "--partition", "1")
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
    yield "`history`", ("history", *of_key)
    yield "`tombstones`", ("tombstones",)
    yield "`transactions`", ("transactions",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, nargs="+", default=[1_000_000, 20_000_000])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--to", type=Path, default=ROOT / "benchmarks" / "memory.md")
    arguments = parser.parse_args()
    results = Results(arguments.commits, arguments.to)
    with tempfile.TemporaryDirectory() as temporary:
        for commits in arguments.commits:
            folder = (arguments.folder or Path(temporary)).resolve() / str(commits)
            if not (folder / "made").exists():
                make(results, folder, commits)
                (folder / "made").touch()
            for what, command in questions(folder):
                if arguments.only in what:
                    results.measure(commits, QUESTION, what, *command, "--lake", str(folder / "lake"))
            if arguments.only in REBUILD:
                results.measure(commits, JOB, REBUILD, "rebuild", "--lake", str(folder / "lake"))


if __name__ == "__main__":
    main()
