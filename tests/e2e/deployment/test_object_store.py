"""A lake in an object store has the tables of a lake in a folder, whatever happens to the store and to the jobs."""

import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.lake.location import lease
from offsetlake.lake.scratch import scratch
from offsetlake.pipeline.compact.rebuild import rebuild
from support.e2e.in_process import InProcess
from support.e2e.lakes import Rows, cycle, plan_expiry, rows, state, upkeep
from support.lakes import new_lake
from support.object_store.jobs import SHORT_LEASES, run
from support.object_store.jobs_process import finish, start
from support.object_store.proxy import EVERY_FAULT, Fault, Proxy, Refusal, Request, proxy_before
from support.object_store.server import S3Server
from support.oracle.random_logs import RandomLog, random_log

TESTS = Path(__file__).parents[2]
MAX_IDLE_REQUESTS, MAX_SMALL_REQUESTS = 60, 200
COMMIT = "*.json"
KILLS = dict.fromkeys(
    (
        "lock", "offsetlake.json", "plan-ingest.json", "plan-compact.json", "plan-expire.json", "plan-maintain.json",
        "*.parquet", "verified.json", "evaluated.json", "*.checkpoint.parquet", "_last_checkpoint",
    ),
    1,
) | {COMMIT: 3}  # fmt: skip
"""The kinds of writes, and before or after how many of each a job is killed."""
PAUSES = 5

Finished = Callable[[str, Path], dict[str, Rows]]
STATE = ("offsets", "pending_offsets", "groups", "group_members", "share_partitions")


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A log, first half of it and then all of it."""
    folder = tmp_path_factory.mktemp("logs")
    whole = random_log(random.Random(17), 400, groups=12, log_partitions=3, commit_ids=(7,))
    RandomLog(whole.world, whole.plans[: len(whole.plans) // 2]).write(folder / "half")
    whole.write(folder / "whole")
    return folder / "half", folder / "whole"


@pytest.fixture(scope="module")
def expected(halves: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """The tables of a lake in a folder to which nothing happens."""
    lake = new_lake(tmp_path_factory.mktemp("expected") / "lake")
    for log in halves:
        cycle(InProcess(), lake, log)
        plan_expiry(InProcess(), lake)
    return state(lake)


@pytest.fixture(scope="module")
def expected_at_once(halves: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """The tables of a lake in a folder that reads the whole log at once."""
    lake = new_lake(tmp_path_factory.mktemp("expected") / "lake")
    cycle(InProcess(), lake, halves[1])
    plan_expiry(InProcess(), lake)
    return state(lake)


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[Proxy]:
    with proxy_before(s3.port) as proxy:
        yield proxy


@pytest.fixture
def finished(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Finished:
    """Runs the jobs in this process to their end, directly on the store; returns the tables."""
    for name, seconds in SHORT_LEASES.items():
        monkeypatch.setattr(lease, name, seconds)

    def finish_here(lake: str, log: Path) -> dict[str, Rows]:
        run(Lake.create(lake), log)
        return state(Lake.open(lake))

    return finish_here


@pytest.mark.long
def test_lake_in_a_store_equals_a_lake_in_a_folder(
    bucket: str, halves: tuple[Path, Path], expected: dict[str, Rows]
) -> None:
    lake = Lake.create(f"s3://{bucket}/lakes/kafka")
    for log in halves:
        cycle(InProcess(), lake, log)
        plan_expiry(InProcess(), lake)
    assert state(lake) == expected
    with scratch(lake) as copy:
        assert state(copy) == expected
    assert upkeep(lake).outcome == "done"
    rebuild(lambda: InProcess(), lake, lambda _: None, STATE)  # noqa: PLW0108 - a session
    assert state(Lake.open(f"s3://{bucket}/lakes/kafka")) == expected
    assert [row["job"] for row in rows(lake, "runs")].count("rebuild") == 1


@pytest.mark.long
def test_lake_of_machines_with_different_clocks_equals_a_lake_in_a_folder(
    bucket: str, halves: tuple[Path, Path], expected: dict[str, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, day_ns = time.time_ns, 86_400 * 10**9
    for log, difference in zip(halves, (day_ns, -day_ns), strict=True):
        monkeypatch.setattr(time, "time_ns", lambda difference=difference: clock() + difference)
        lake = Lake.create(f"s3://{bucket}/lake")
        cycle(InProcess(), lake, log)
        plan_expiry(InProcess(), lake)
    assert state(lake) == expected
    started = [row["started_at"] for row in rows(lake, "runs") if row["job"] == "ingest"]
    assert max(started) - min(started) > day_ns // 10**6


@pytest.mark.long
def test_requests_of_a_cycle_are_bounded(proxy: Proxy, bucket: str, halves: tuple[Path, Path]) -> None:
    lake, counts = f"s3://{bucket}/lake", []
    for log in (*halves, *[halves[1]] * 2):
        proxy.requests.clear()
        finish(lake, log, proxy.endpoint, "cycle")
        counts.append(len(proxy.requests))
    _, small, *idle = counts
    assert max(idle) <= MAX_IDLE_REQUESTS
    assert small <= MAX_SMALL_REQUESTS


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_tables_are_the_same_after_random_failures_of_the_store(
    seed: int, proxy: Proxy, bucket: str, finished: Finished, halves: tuple[Path, Path], expected: dict[str, Rows]
) -> None:
    chance, failures = random.Random(seed), []

    def sometimes(request: Request) -> Fault | Refusal:
        if chance.random() > 0.04:
            return Fault.NONE
        failures.append(request)
        return chance.choice(EVERY_FAULT)

    proxy.fault = sometimes
    lake = f"s3://{bucket}/lake"
    for log in halves:
        for _ in range(5):
            process = start(lake, log, proxy.endpoint)
            _, errors = process.communicate()
            assert process.returncode in (0, 5, 6), errors  # done, LakeBusy, LakeUnusable
            if process.returncode == 0:
                break
        tables = finished(lake, log)  # does nothing if a process succeeded
    assert len(failures) > 20
    assert tables == expected


def is_commit(request: Request) -> bool:
    """Return whether the request writes an entry of a Delta log, not a checkpoint."""
    return request.method == "PUT" and "/_delta_log/" in request.path and request.path.endswith(".json")


def kind_of(request: Request) -> str | None:
    """Return the kind of a write: the name of the object without what differs between runs."""
    if request.method not in ("PUT", "POST", "DELETE"):
        return None
    return re.sub(r"^(part-[^.]+|\d{20})", "*", request.path.rpartition("/")[2])


def at_equal_distances(count: int, number: int) -> list[int]:
    """Choose numbers from 1 to `count`; one is in the middle."""
    return [count * (2 * index + 1) // (2 * number) + 1 for index in range(number)]


@dataclass
class Kill:
    """Kills the process that sends write number `at` of a kind, which the store receives or not."""

    proxy: Proxy
    kind: str
    at: int
    fault: Fault
    pid: int = 0

    def __call__(self, request: Request) -> Fault:
        until = self.proxy.requests[: request.number]
        if kind_of(request) != self.kind or [*map(kind_of, until)].count(self.kind) != self.at:
            return Fault.NONE
        os.kill(self.pid, signal.SIGKILL)
        return self.fault


@pytest.fixture
def never_killed(
    proxy: Proxy, bucket: str, halves: tuple[Path, Path], expected_at_once: dict[str, Rows]
) -> list[Request]:
    """The requests of jobs to which nothing happens."""
    finish(f"s3://{bucket}/never-killed", halves[1], proxy.endpoint)
    assert state(Lake.open(f"s3://{bucket}/never-killed")) == expected_at_once
    return [*proxy.requests]


@pytest.mark.long
@pytest.mark.timeout(1800)  # a process for each kill
def test_tables_are_the_same_after_a_job_is_killed_at_any_kind_of_write(
    proxy: Proxy,
    bucket: str,
    finished: Finished,
    never_killed: list[Request],
    halves: tuple[Path, Path],
    expected_at_once: dict[str, Rows],
) -> None:
    writes = Counter(filter(None, map(kind_of, never_killed)))
    assert writes.keys() == KILLS.keys()
    writes["lock"] = 2  # how often a lease is renewed depends on the time
    kills = [(kind, at) for kind, number in KILLS.items() for at in at_equal_distances(writes[kind], number)]
    for number, (kind, at) in enumerate(kills):
        lake = f"s3://{bucket}/killed-{number}"
        proxy.requests.clear()
        fault = Fault.CONNECTION_LOST_AFTER if number % 2 else Fault.CONNECTION_LOST_BEFORE
        proxy.fault = kill = Kill(proxy, kind, at, fault)
        job = start(lake, halves[1], proxy.endpoint)
        kill.pid = job.pid
        _, errors = job.communicate()
        assert job.returncode == -signal.SIGKILL, errors
        assert finished(lake, halves[1]) == expected_at_once, f"killed at {kind} {at}"


@pytest.mark.long
def test_paused_job_whose_lease_was_taken_over_commits_nothing(
    proxy: Proxy,
    bucket: str,
    finished: Finished,
    never_killed: list[Request],
    halves: tuple[Path, Path],
    expected_at_once: dict[str, Rows],
) -> None:
    locked = next(request.number for request in never_killed if request.path.endswith("/plan-ingest.json"))
    created = sum(is_commit(request) for request in never_killed if request.number < locked)
    commits = sum(map(is_commit, never_killed))
    for paused_at in (created + at for at in at_equal_distances(commits - created, PAUSES)):
        lake = f"s3://{bucket}/paused-{paused_at}"
        proxy.requests.clear()
        paused, go_on = threading.Event(), threading.Event()

        def hold(
            request: Request,
            paused_at: int = paused_at,
            paused: threading.Event = paused,
            go_on: threading.Event = go_on,
        ) -> Fault:
            if is_commit(request) and sum(map(is_commit, proxy.requests)) >= paused_at:
                paused.set()
            if paused.is_set():
                go_on.wait()
            return Fault.NONE

        proxy.fault = hold
        job = start(lake, halves[1], proxy.endpoint)
        try:
            while not paused.wait(0.1):
                assert job.poll() is None, job.communicate()[1]
            tables, versions = finished(lake, halves[1]), Lake.open(lake).versions()
        finally:
            go_on.set()
        _, errors = job.communicate()
        assert job.returncode == 5, errors
        assert Lake.open(lake).versions() == versions, f"paused at commit {paused_at}"
        assert tables == state(Lake.open(lake)) == expected_at_once
