"""Runs the jobs of a cycle in another process, whose object store is at an endpoint of its own."""

import os
import subprocess
import sys
from pathlib import Path

from support.object_store.server import client_environment


def start(lake: str, log: Path, endpoint: str, *what: str) -> "subprocess.Popen[str]":
    """Start the jobs of `support.object_store.jobs`."""
    environment = os.environ | client_environment(endpoint) | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "support.object_store.jobs", lake, str(log), *what]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def finish(lake: str, log: Path, endpoint: str, *what: str) -> None:
    """Run the jobs, which succeed."""
    process = start(lake, log, endpoint, *what)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
