"""`make airflow`: the DAGs run on their own, the page shows them, and Ctrl-C ends all of it."""

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.broker.broker import free_ports
from support.dags.airflow_runs import SECONDS, Airflow, descendants, kill_tree, new_home, program

pytestmark = [pytest.mark.slow, pytest.mark.long]

QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1400,900",
)  # fmt: skip


class Local:
    """An Airflow that `make airflow` has started, on jobs that answer at once."""

    def __init__(self, at: Airflow) -> None:
        (port,) = free_ports(1)
        self.at, self.record = at, Path(at.variables["RECORD"])
        self.address = f"http://127.0.0.1:{port}"
        self.record.touch()
        self.process = at.start("make", "-s", "-o", "setup", "airflow", f"PORT={port}")

    def ask(self, path: str, content: Any = None) -> Any:
        """Ask its API; None while it does not answer."""
        data = None if content is None else json.dumps(content).encode()
        asked = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})  # noqa: S310
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310 - http, our own
                return json.load(answer)
        except (OSError, urllib.error.URLError):
            return None

    def states(self) -> dict[str, str]:
        """States of the newest run of each DAG."""
        found = self.ask("/api/v2/dags/~/dagRuns?order_by=-id") or {"dag_runs": []}
        return {run["dag_id"]: run["state"] for run in reversed(found["dag_runs"])}


@pytest.fixture(scope="module")
def local(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    folder = tmp_path_factory.mktemp("local")
    variables = {"RECORD": str(folder / "asked")}
    programs = program(folder / "programs", "answering.py")
    started = Local(Airflow(new_home(migrated, folder / "home"), programs, variables))
    yield started
    kill_tree(started.process)


def test_local_airflow_runs_the_dags(local: Local) -> None:
    wanted = dict.fromkeys(("offset_lifecycle", "offset_maintenance", "offset_audit", "offset_replication"), "success")
    local.at.wait_for(lambda: local.states() == wanted, local.process)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium here")
def test_local_airflow_shows_the_dags_in_a_browser(local: Local, tmp_path: Path) -> None:
    options = [*QUIET, f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=20000", "--dump-dom"]
    command = ["chromium", *options, f"{local.address}/dags/offset_lifecycle"]
    page = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    for task in ("ingest", "check_compacted", "may_emit", "emit"):
        assert task in page.stdout, page.stderr


def test_ctrl_c_ends_local_airflow_with_its_running_job(local: Local) -> None:
    run = {"logical_date": None, "conf": {"config": "/for-ever"}}
    local.at.wait_for(lambda: local.ask("/api/v2/dags/offset_lifecycle/dagRuns", run), local.process)
    local.at.wait_for(lambda: "/for-ever" in local.record.read_text(), local.process)
    of_it = descendants(local.process.pid)
    assert [pid for pid in of_it if b"answering.py\0ingest" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.killpg(local.process.pid, signal.SIGINT)
    local.process.wait(SECONDS)
    assert f"Airflow is at {local.address} and needs no login" in local.at.said()
    assert "the task hanging_transactions of offset_maintenance fails for it" in local.at.said()
    deadline = time.monotonic() + SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in of_it):
        assert time.monotonic() < deadline, [pid for pid in of_it if Path(f"/proc/{pid}").exists()]
        time.sleep(0.1)
