"""Airflow as the tests run it: an environment of its own, each run with a home of its own, on `offsetlake` programs."""

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
SECONDS = 300  # more than any of this takes where the machine is busy with other tests
_SAID = "said.txt"
_IN_ITS_ENVIRONMENT = 'set -a; . conf/airflow.env; set +a; exec "$@"'


@dataclass(frozen=True, slots=True)
class Airflow:
    """One Airflow: its home, the folder with the program `offsetlake` that it finds, and variables beside."""

    home: Path
    programs: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def start(self, *command: str) -> "subprocess.Popen[str]":
        """Start a command in Airflow's environment, in a session of its own; what it says goes to `said`."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "OFFSETLAKE_"))}
        environment = own | {
            "AIRFLOW_HOME": str(self.home),
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "lib"), str(ROOT / "tests")]),
        }
        self.home.mkdir(exist_ok=True)
        with (self.home / _SAID).open("w") as said:
            return subprocess.Popen(
                ["bash", "-c", _IN_ITS_ENVIRONMENT, "airflow", *command],
                cwd=ROOT,
                env=environment | self.variables,
                stdout=said,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def said(self) -> str:
        """Give what the last command said so far."""
        return (self.home / _SAID).read_text()

    def run(self, *command: str) -> str:
        """Run a command to its end, which has to be a good one; gives what it said."""
        process = self.start(*command)
        try:
            process.wait(SECONDS)
        finally:
            kill_tree(process)
        assert process.returncode == 0, self.said()
        return self.said()

    def wait_for(self, what: Callable[[], object], process: "subprocess.Popen[str]") -> None:
        """Wait until something is so, while a command of this Airflow runs."""
        deadline = time.monotonic() + SECONDS
        while not what():
            assert process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def script(self, name: str, *arguments: str) -> Any:
        """Run a script of this folder in Airflow's environment; gives the JSON it writes to the file it is given."""
        answer = self.home / f"{name}.json"
        said = self.run("python", str(HERE / name), str(answer), *arguments)
        return json.loads(answer.read_text()) | {"said": said}

    def held(self) -> dict[str, list[dict[str, Any]]]:
        """Give what was published of each asset, oldest first."""
        sql = "SELECT name, e.extra FROM asset JOIN asset_event e ON asset.id = e.asset_id ORDER BY e.id"
        with closing(sqlite3.connect(self.home / "airflow.db")) as database:
            events = database.execute(sql).fetchall()
        found: dict[str, list[dict[str, Any]]] = {}
        for name, extra in events:
            found.setdefault(name, []).append(json.loads(extra))
        return found


def program(folder: Path, script: str) -> Path:
    """Make a folder with a program `offsetlake` that is a script of this one, run by the interpreter of the tests."""
    folder.mkdir()
    made = folder / "offsetlake"
    made.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / script} "$@"\n')
    made.chmod(0o755)
    return folder


def new_home(migrated: Path, folder: Path) -> Path:
    """Make a home from one whose database is ready."""
    shutil.copytree(migrated, folder)
    config = folder / "airflow.cfg"
    config.write_text(config.read_text().replace(str(migrated), str(folder)))
    return folder


def kill_tree(process: "subprocess.Popen[str]") -> None:
    """End a process that still runs, and all that descend from it, whatever session they are in, with SIGKILL."""
    for each in descendants(process.pid) if process.poll() is None else ():
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    process.wait()


def descendants(pid: int) -> list[int]:
    """Give a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = status.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(int(after_name[1]), []).append(int(status.parent.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found
