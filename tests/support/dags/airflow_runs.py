"""Airflow in its own environment; each instance has its own home and its own `offsetlake` program."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
SECONDS = 300  # more than any command takes while the machine runs other tests
_OUTPUT_FILE = "output.txt"
_IN_ITS_ENVIRONMENT = 'set -a; . conf/airflow.env; set +a; exec "$@"'


@dataclass(frozen=True, slots=True)
class Airflow:
    """One Airflow: its home, the folder of the program `offsetlake` that it runs, and further environment variables."""

    home: Path
    programs: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def start(self, *command: str) -> "subprocess.Popen[str]":
        """Start a command in Airflow's environment, in its own session; `said` returns its output."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "OFFSETLAKE_"))
        }
        environment = inherited | {
            "AIRFLOW_HOME": str(self.home),
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "lib"), str(ROOT / "tests")]),
        }
        self.home.mkdir(exist_ok=True)
        with (self.home / _OUTPUT_FILE).open("w") as output:
            return subprocess.Popen(
                ["bash", "-c", _IN_ITS_ENVIRONMENT, "airflow", *command],
                cwd=ROOT,
                env=environment | self.variables,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def said(self) -> str:
        """Return the output of the last command so far."""
        return (self.home / _OUTPUT_FILE).read_text()

    def run(self, *command: str) -> str:
        """Run a command, check that it succeeds, and return its output."""
        process = self.start(*command)
        try:
            process.wait(SECONDS)
        finally:
            kill_tree(process)
        assert process.returncode == 0, self.said()
        return self.said()

    def wait_for(self, condition: Callable[[], object], process: "subprocess.Popen[str]") -> None:
        """Wait until a condition is true; fail if the command of this Airflow exits before."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def script(self, name: str, *arguments: str) -> Any:
        """Run a script of this folder in Airflow's environment; return its JSON result, with its output as `said`."""
        result = self.home / f"{name}.json"
        output = self.run("python", str(HERE / name), str(result), *arguments)
        return json.loads(result.read_text()) | {"said": output}

    def held(self) -> dict[str, list[dict[str, Any]]]:
        """Return the published events of each asset, oldest first."""
        sql = "SELECT name, e.extra FROM asset JOIN asset_event e ON asset.id = e.asset_id ORDER BY e.id"
        with closing(sqlite3.connect(self.home / "airflow.db")) as database:
            events = database.execute(sql).fetchall()
        events_by_asset: dict[str, list[dict[str, Any]]] = {}
        for name, extra in events:
            events_by_asset.setdefault(name, []).append(json.loads(extra))
        return events_by_asset


def program(folder: Path, script: str) -> Path:
    """Create a folder with a program `offsetlake` that runs a script of this folder with the tests' interpreter."""
    folder.mkdir()
    executable = folder / "offsetlake"
    executable.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / script} "$@"\n')
    executable.chmod(0o755)
    return folder


def new_home(migrated: Path, folder: Path) -> Path:
    """Create a home as a copy of one whose database is migrated."""
    shutil.copytree(migrated, folder)
    config = folder / "airflow.cfg"
    config.write_text(config.read_text().replace(str(migrated), str(folder)))
    return folder


def kill_tree(process: "subprocess.Popen[str]") -> None:
    """Kill a running process and all its descendants, in any session."""
    for pid in descendants(process.pid) if process.poll() is None else ():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def descendants(pid: int) -> list[int]:
    """Return the ids of a process and of all its descendants."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = status.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(int(after_name[1]), []).append(int(status.parent.name))
    pids = [pid]
    for parent in pids:  # grows meanwhile
        pids += children.get(parent, [])
    return pids
