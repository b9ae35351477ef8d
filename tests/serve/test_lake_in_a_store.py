"""The serving process over a lake in an object store, which is unavailable for an hour."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from offsetlake.lake.location import object_store
from support.command_line import Run
from support.object_store.jobs_process import finish
from support.object_store.server import VERSITYGW, client_environment, s3_server
from support.serve.controlled_clock import ControlledClock
from support.serve.job_socket_requests import commit, fetched
from support.serve.serving import Serving
from support.serve.wire_client import WireClient

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not VERSITYGW.exists(), reason="moto keeps its objects in memory: they end with its process"),
]

REAL_LOG = Path(__file__).parents[1] / "fixtures" / "broker-log"
REFRESHED, FAILED = "Refreshed the snapshot", "The snapshot refresh failed, serving continues"
MINUTES = 60
MAX_GROWTH_BYTES = 4 << 20
MAX_GROWTH = 10
"""The number of further threads or open files that are no leak: a leak has at least one for each of the refreshes."""


def test_lake_in_a_store_is_served_while_the_store_is_unavailable_for_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    log, clock = tmp_path / "log", ControlledClock(tmp_path / "clock")
    shutil.copytree(REAL_LOG, log)
    (log / "meta.properties").unlink()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr(object_store, "RETRIES", {"max_retries": 0})  # of `offsetlake run` in this process
    with s3_server(tmp_path) as store:
        for name, value in client_environment(store.endpoint).items():
            monkeypatch.setenv(name, value)
        lake = f"s3://{store.new_bucket()}/lake"
        finish(lake, log, store.endpoint)
        with Serving(lake, log, program=clock.program) as serving, WireClient(serving.bootstrap) as client:
            commit(client, "before", {0: 1})
            clock.advance(60)
            finish(lake, log, store.endpoint)
            serving.wait_for_line(REFRESHED)
            store.kill()
            resources = []
            for minute in range(MINUTES):
                seen = len(serving.said)
                clock.advance(60)
                for number in range(50):
                    commit(client, "during", {number: minute})
                assert fetched(client, "during", *range(50)) == [minute] * 50
                assert fetched(client, "before", 0) == [1]
                serving.wait_for_line(FAILED, seen)
                resources.append(used(serving.process.pid))
            warmed, last = resources[MINUTES // 4], resources[-1]
            assert last[0] <= warmed[0] + MAX_GROWTH_BYTES, resources
            assert all(now - before < MAX_GROWTH for now, before in zip(last[1:], warmed[1:], strict=True)), resources
            exit_code, _, errors = run("run", "--lake", lake, "--log", str(log))
            assert exit_code == 6
            assert f"the lake {lake} cannot be used: the store cannot be reached" in errors
            store.start()
            seen = len(serving.said)
            finish(lake, log, store.endpoint)
            clock.advance(60)
            commit(client, "after", {0: 3})
            serving.wait_for_line(REFRESHED, seen)
            assert fetched(client, "during", 0, 49) == [MINUTES - 1] * 2
            assert fetched(client, "after", 0) == [3]


def used(process: int) -> tuple[int, int, int]:
    """Return the resident memory of a process in bytes, and the numbers of its threads and open files."""
    folder = Path(f"/proc/{process}")
    pages = int((folder / "statm").read_text(encoding="ascii").split()[1])
    counts = (len([*(folder / kind).iterdir()]) for kind in ("task", "fd"))
    return pages * os.sysconf("SC_PAGE_SIZE"), *counts
