"""A lake in an object store has the tables of a lake in a folder, whatever happens to the store and to the jobs."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.lake.scratch import scratch
from offsetlake.pipeline.compact.rebuild import rebuild
from support.e2e.in_process import InProcess
from support.e2e.lakes import Rows, cycle, plan_expiry, rows, state, upkeep
from support.lakes import new_lake
from support.object_store.jobs_process import finish, start
from support.object_store.proxy import EVERY_FAULT, Fault, Proxy, Refusal, Request, proxy_before
from support.object_store.server import S3Server
from support.oracle.random_logs import RandomLog, random_log

if TYPE_CHECKING:
    import subprocess

TESTS = Path(__file__).parents[1]
MAX_IDLE_REQUESTS, MAX_SMALL_REQUESTS = 60, 200
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
    for log in (*halves, *[halves[1]] * 3):
        proxy.requests.clear()
        finish(lake, log, proxy.endpoint, "cycle")
        counts.append(len(proxy.requests))
    _, small, *idle = counts
    assert max(idle) <= MAX_IDLE_REQUESTS
    assert small <= MAX_SMALL_REQUESTS


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_tables_are_the_same_after_random_failures_of_the_store(
    seed: int, proxy: Proxy, s3: S3Server, bucket: str, halves: tuple[Path, Path], expected: dict[str, Rows]
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
    assert len(failures) > 20
    finish(lake, halves[1], s3.endpoint)
    assert state(Lake.open(lake)) == expected


def is_commit(request: Request) -> bool:
    """Return whether the request writes an entry of a Delta log, not a checkpoint."""
    return request.method == "PUT" and "/_delta_log/" in request.path and request.path.endswith(".json")


def at_requests(count: int, kinds: Callable[[Request], bool], run: list[Request]) -> list[int]:
    """Choose the numbers of some requests of a run at equal distances."""
    chosen = [request.number for request in run if kinds(request)]
    return chosen[:: max(1, len(chosen) // count)]


@pytest.mark.long
@pytest.mark.timeout(1800)  # two processes for each kill
def test_tables_are_the_same_after_a_job_is_killed_at_any_write(
    proxy: Proxy, s3: S3Server, bucket: str, halves: tuple[Path, Path], expected_at_once: dict[str, Rows]
) -> None:
    finish(f"s3://{bucket}/never-killed", halves[1], proxy.endpoint)
    assert state(Lake.open(f"s3://{bucket}/never-killed")) == expected_at_once
    numbers = at_requests(16, lambda request: request.method in ("PUT", "POST", "DELETE"), proxy.requests)
    assert len(numbers) >= 16
    for number in numbers:
        lake = f"s3://{bucket}/killed-{number}"
        proxy.requests.clear()
        started: list[subprocess.Popen[str]] = []

        def kill(request: Request, number: int = number, started: list["subprocess.Popen[str]"] = started) -> Fault:
            if request.number < number:
                return Fault.NONE
            os.kill(started[0].pid, signal.SIGKILL)
            return Fault.CONNECTION_LOST_AFTER if number % 2 else Fault.CONNECTION_LOST_BEFORE

        proxy.fault = kill
        started.append(start(lake, halves[1], proxy.endpoint))
        started[0].communicate()
        assert started[0].returncode in (-signal.SIGKILL, 0)
        finish(lake, halves[1], s3.endpoint)
        assert state(Lake.open(lake)) == expected_at_once, f"killed at request {number}"


@pytest.mark.long
def test_paused_job_whose_lease_was_taken_over_commits_nothing(
    proxy: Proxy, s3: S3Server, bucket: str, halves: tuple[Path, Path], expected_at_once: dict[str, Rows]
) -> None:
    finish(f"s3://{bucket}/never-paused", halves[1], proxy.endpoint)
    locked = next(request.number for request in proxy.requests if request.path.endswith("/plan-ingest.json"))
    created = sum(is_commit(request) for request in proxy.requests if request.number < locked)
    commits = sum(map(is_commit, proxy.requests))
    for paused_at in range(created + 1, commits, max(1, (commits - created) // 10)):
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
        assert paused.wait(60)
        finish(lake, halves[1], s3.endpoint)
        versions = Lake.open(lake).versions()
        go_on.set()
        _, errors = job.communicate()
        assert job.returncode == 5, errors
        assert Lake.open(lake).versions() == versions, f"paused at commit {paused_at}"
        assert state(Lake.open(lake)) == expected_at_once
