"""File descriptors run out: connections wait or are closed, and the process keeps serving."""

import json
import resource
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from serve.writes.test_disk import committed, fetched
from support.serve.secured import USERS, Secured, log_in, secured
from support.serve.serving import Serving
from support.serve.wire_client import WireClient

LIMIT = 230  # 200 of them are reserved
TRACE = "Traceback"


def connect(serving: Serving) -> socket.socket:
    host, _, port = serving.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=120)


@pytest.mark.long
@pytest.mark.slow
def test_idle_connections_do_not_use_reserved_descriptors(tmp_path: Path) -> None:
    """The soft limit is raised to the hard limit, and connections that do not fit into it are closed."""
    with (
        Serving(tmp_path / "lake", tmp_path / "log", ["prlimit", f"--nofile=64:{LIMIT}"]) as serving,
        ExitStack() as opened,
    ):
        limits = "At most 30 connections are accepted: max_connections is 10000, and 200 of 230 file descriptors"
        assert any(limits in line for line in serving.said)
        idle = [opened.enter_context(connect(serving)) for _ in range(2 * LIMIT)]
        closed = sum(connection.recv(1) == b"" for connection in idle[30:])
        assert closed == len(idle) - 30
        for connection in idle[:2]:
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b"", "it no longer counts"
        with WireClient(serving.bootstrap) as client:
            assert committed(client, "g", 1) == {0}
            assert fetched(client, "g") == [1, 1]
        opened.close()
        assert serving.stop() == 0
    assert not [line for line in serving.said if TRACE in line]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_process_without_free_descriptors_keeps_serving(tmp_path: Path, tls: bool) -> None:
    """The limit can be lowered, or that of the machine be reached, while the process runs."""
    files = secured(tmp_path)
    settings = {} if tls else {"tls_certificate": None, "tls_key": None}
    with Serving(tmp_path / "lake", tmp_path / "log", **{**files.settings, **settings}) as serving:
        with ExitStack() as opened:
            client = logged_in(serving, files, tls=tls, opened=opened)
            assert committed(client, "billing-a", 1) == {0}
            first = len(serving.said)
            used = len([*Path(f"/proc/{serving.process.pid}/fd").iterdir()])
            _, hard = resource.prlimit(serving.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(serving.process.pid, resource.RLIMIT_NOFILE, (used, hard))
            # A file that was open when they were counted, or a gap in their numbers, is used by the first of them.
            waiting = [opened.enter_context(connect(serving)) for _ in range(10)]
            files.acl.write_text(files.acl.read_text() + "\n")
            files.certify(files.authority)
            job = opened.enter_context(socket.socket(socket.AF_UNIX))
            job.connect(str(tmp_path / "log" / "offsetlake.sock"))
            serving.wait_for_line("Cannot accept connections: Too many open files", first)
            serving.wait_for_line("The snapshot refresh failed, serving continues from the current snapshot", first)
            serving.wait_for_line(f"Cannot read ACL file {files.acl}", first)
            assert committed(client, "billing-a", 2) == {0}
            assert fetched(client, "billing-a") == [2, 2]
            resource.prlimit(serving.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
            for connection in waiting:
                connection.close()
            again = logged_in(serving, files, tls=tls, opened=opened)
            assert fetched(again, "billing-a") == [2, 2]
            serving.wait_for_line(f"Reloaded {files.acl}", first)
        assert serving.stop() == 0
    assert not [line for line in serving.said if TRACE in line]


def logged_in(serving: Serving, files: Secured, *, tls: bool, opened: ExitStack) -> WireClient:
    client = opened.enter_context(files.wire(serving.bootstrap) if tls else WireClient(serving.bootstrap))
    return log_in(client, "billing", USERS["billing"])


def test_limit_that_leaves_no_connection_is_refused(tmp_path: Path) -> None:
    settings = {"lake": str(tmp_path / "lake"), "log": str(tmp_path / "log"), "host": "127.0.0.1", "port": 0}
    command = [sys.executable, "-m", "offsetlake.cli.serve_process", json.dumps(settings)]
    limited = ["prlimit", "--nofile=100:100", *command]
    done = subprocess.run(limited, stderr=subprocess.PIPE, text=True, timeout=400, check=False)
    assert done.returncode == 2
    assert "error: The process may open 100 files (RLIMIT_NOFILE), but the log and child processes need 200" in (
        done.stderr
    )
