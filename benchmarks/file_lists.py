"""Memory and time of the driver of `compact` for lists of many files; writes benchmarks/results/file_lists.md.

python benchmarks/file_lists.py

The Delta logs list files that do not exist, with statistics as the jobs write them: planning reads no data file. The
tasks that sort a large log partition are simulated by their results. Each lake is measured in a process of its own.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

from deltalake.transaction import AddAction  # noqa: E402 - sys.path is set above
from pyspark.serializers import CloudPickleSerializer  # noqa: E402

from offsetlake.lake import current_run, plans, runs  # noqa: E402
from offsetlake.lake.definitions import REDUCED_HISTORY, STATE  # noqa: E402
from offsetlake.lake.files import FileChanges, commit  # noqa: E402
from offsetlake.lake.history.history_files import History, HistoryFile  # noqa: E402
from offsetlake.lake.lake import Lake  # noqa: E402
from offsetlake.lake.state_files import STATE_FILE_ROWS, list_state_files  # noqa: E402
from offsetlake.log.positions import OFFSETS_TOPIC  # noqa: E402
from offsetlake.pipeline.compact import division  # noqa: E402
from offsetlake.pipeline.compact.division import SAMPLED_ROWS, TASK_ROWS, SortedCommits, divide  # noqa: E402
from offsetlake.pipeline.compact.reduced_history import Compaction  # noqa: E402
from offsetlake.pipeline.compact.task import compact_item  # noqa: E402
from run import ignore_progress, peak_memory  # noqa: E402

LOG_PARTITIONS = 50
KEYS_PER_GROUP = 50
CORES = 32
FILES_PER_COMMIT = 5_000

Case = tuple[str, int, int, int, int]
CASES: list[Case] = [
    # description, keys, commits, commits per file of history, share of the largest log partition in percent
    ("balanced, ingested at once", 10_000_000, 100_000_000, 600_000, 2),
    ("balanced, ingested at once", 100_000_000, 1_000_000_000, 600_000, 2),
    ("one log partition with 90 %, ingested at once", 100_000_000, 1_000_000_000, 600_000, 90),
    ("one log partition with 90 %, ingested in small runs", 100_000_000, 1_000_000_000, 50_000, 90),
]


def shares(largest: int) -> list[float]:
    """Return the share of each log partition; the first is the largest."""
    rest = (1 - largest / 100) / (LOG_PARTITIONS - 1)
    return [largest / 100, *[rest] * (LOG_PARTITIONS - 1)]


def added(number: int, rows: int, **bounds: tuple[Any, Any]) -> AddAction:
    """Return the action that adds a file which does not exist, with the statistics that the jobs write."""
    statistics = {
        "numRecords": rows,
        "minValues": {name: low for name, (low, _) in bounds.items()},
        "maxValues": {name: high for name, (_, high) in bounds.items()},
        "nullCount": dict.fromkeys(bounds, 0),
    }
    path = f"part-00000000-0000-4000-8000-{number:012}.parquet"
    return AddAction(path, rows * 20, {}, 1_700_000_000_000, True, json.dumps(statistics))


def group_name(number: int) -> str:
    return f"team-{number % 97:02}.service-{number:09}"


def state_actions(rows: int, largest: int) -> Iterator[AddAction]:
    """Yield the state files of a table: each has a range of the groups of one log partition."""
    number = 0
    for partition, share in enumerate(shares(largest)):
        for index in range(max(1, round(rows * share / STATE_FILE_ROWS))):
            names = (f"{index:06}-a", f"{index:06}-z")
            yield added(number, STATE_FILE_ROWS, log_partition=(partition, partition), group_id=names)
            number += 1


def history_actions(commits: int, commits_per_file: int, largest: int) -> Iterator[AddAction]:
    number = 0
    for partition, share in enumerate(shares(largest)):
        for _ in range(max(1, round(commits * share / commits_per_file))):
            bounds = {"log_partition": (partition, partition), "ingest_run": (1, 1), "log_offset": (0, 1 << 40)}
            yield added(number, commits_per_file, **bounds, group_id=("a", "z"), topic=("a", "z"), partition=(0, 99))
            number += 1


def append(lake: Lake, table: str, actions: Iterator[AddAction]) -> None:
    every = [*actions]
    for start in range(0, len(every), FILES_PER_COMMIT):
        target = lake.delta_table(table)
        target.create_write_transaction(every[start : start + FILES_PER_COMMIT], "append", target.schema())
    lake.delta_table(table).create_checkpoint()


def create_lake(path: Path, case: Case) -> None:
    _, keys, commits, commits_per_file, largest = case
    lake = Lake.create(path)
    groups = keys // KEYS_PER_GROUP
    for table, rows in (("offsets", keys), ("groups", groups), ("group_members", groups), ("pending_offsets", 50)):
        append(lake, table, state_actions(rows, largest))
    append(lake, "offset_commits", history_actions(commits, commits_per_file, largest))
    plan = current_run.begin(
        lake, "ingest", plans.IngestPlan(log="log", log_identity=None, ranges="{}", gaps="{}", positions=())
    )
    read = tuple(
        runs.LogRange(OFFSETS_TOPIC, partition, 0, int(commits * share))
        for partition, share in enumerate(shares(largest))
    )
    current_run.finish(lake, "ingest", plan, outcome="done", counts={}, ingested=runs.Ingested(None, read, (), ()))


def sorted_part(work: tuple[int, list[HistoryFile]]) -> SortedCommits:
    """Return what the task that sorts a part of a log partition would return."""
    partition, _ = work
    names = sorted(group_name(number * 7_919 % 2_000_000) for number in range(TASK_ROWS // SAMPLED_ROWS))
    return SortedCommits(HistoryFile(f"part-{'0' * 36}.parquet", partition, partition, TASK_ROWS), names)


@contextmanager
def simulated_cluster() -> Iterator[None]:
    def distribute(_spark: object, _work: object, items: Sequence[Any]) -> list[SortedCommits]:
        return [sorted_part(item) for item in items]

    many = {"distribute": distribute, "concurrent_tasks": lambda _spark: CORES}
    with (
        patch.multiple(division, **many),
        patch.object(division, "chunk_partitions", lambda _s, some: [[p] for p in some]),
    ):
        yield


def measure(path: Path) -> None:
    """Plan a compaction, commit the replacement of all state files of `offsets`, and print what it took."""
    lake = Lake.open(path)
    base = peak_memory()
    start = time.perf_counter()
    history = History.open(lake, REDUCED_HISTORY, 1, 1)
    state = {table: list_state_files(lake, table, version) for table, version in lake.versions(*STATE).items()}
    compaction = Compaction(history, state)
    listed = time.perf_counter() - start
    with simulated_cluster():
        items = divide(None, compaction, history.partitions(), ignore_progress)
    planned = time.perf_counter() - start
    serializer = CloudPickleSerializer()
    closure = len(serializer.dumps(partial(compact_item, compaction)))
    content = sum(len(serializer.dumps(item)) for item in items)
    paths = [file.path for files in state["offsets"].values() for file in files]
    new = [
        added(10**9 + number, STATE_FILE_ROWS, log_partition=(0, 0), group_id=("a", "b"))
        for number in range(len(paths))
    ]
    start = time.perf_counter()
    commit(lake, "offsets", [FileChanges(new, paths)], "compact", 2)
    committed = time.perf_counter() - start
    files = sum(map(len, history.files.values())) + sum(
        len(some) for table in state.values() for some in table.values()
    )
    print(
        json.dumps(
            {
                "files": files, "items": len(items), "listed": listed, "planned": planned, "committed": committed,
                "closure": closure, "content": content, "memory": peak_memory() - base,
            }
        )
    )  # fmt: skip


def row_of(case: Case) -> str:
    description, keys, commits, _, _ = case
    with tempfile.TemporaryDirectory() as folder:
        create_lake(Path(folder) / "lake", case)
        command = [sys.executable, __file__, "--measure", f"{folder}/lake"]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    of = json.loads(done.stdout.splitlines()[-1])
    cells = [
        f"{keys / 1e6:g} M keys, {commits / 1e6:g} M commits, {description}", f"{of['files']:,}", f"{of['items']:,}",
        f"{of['listed']:.2f} s", f"{of['planned'] - of['listed']:.2f} s", f"{of['committed']:.2f} s",
        f"{of['closure'] / 1e6:.1f} MB", f"{of['content'] / 1e6:.1f} MB", f"{of['memory'] / 1024:.0f} MB",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure)
        return
    columns = (
        "lake", "files", "tasks", "list files", "divide the work", "commit `offsets`", "sent to each task",
        "all work items", "memory of the driver",
    )  # fmt: skip
    head = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    text = "\n".join([*head, *map(row_of, CASES)]) + "\n"
    print(text)
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    title = "# Planning a compaction of many files\n\n"
    method = (
        f"`python benchmarks/file_lists.py`, {machine}; a simulated cluster with {CORES} cores. The files do not exist: only\n"
        "the Delta logs and the results of tasks are simulated. The memory is the growth of the peak resident memory of the\n"
        "Python process, without Spark.\n\n"
    )
    (ROOT / "benchmarks" / "results" / "file_lists.md").write_text(title + method + text, encoding="utf-8")


if __name__ == "__main__":
    main()
