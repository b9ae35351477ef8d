"""A Spark standalone cluster on loopback, from the pyspark package: a master, workers and spark-submit."""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark

from support.broker.broker import free_ports

SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS = 180  # more than a start takes while the machine runs other tests
STOP_SECONDS = 20
SUBMIT_SECONDS = 400
WORKERS = 2  # each with one core and one GiB
RESOURCES = {
    "spark.cores.max": str(WORKERS),
    "spark.executor.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
}
"""Spark properties by which a job starts when the cores of both workers are registered."""

_NOT_INHERITED = ("PYTHON", "PYSPARK_", "SPARK_", "OFFSETLAKE_")  # prefixes of variables of the tests' environment
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Host:
    """An address to listen on, in a network namespace; None for that of this process."""

    address: str = "127.0.0.1"
    namespace: str | None = None

    def command(self, words: Sequence[str | Path]) -> list[str]:
        """Return the command line that runs a command on this host."""
        prefix = [] if self.namespace is None else ["ip", "netns", "exec", self.namespace]
        return [*prefix, *map(str, words)]


LOOPBACK = Host()


class ClusterFailedError(RuntimeError):
    """The cluster did not start; the message ends with the tail of its log."""


class Cluster:
    """Runs a cluster as a context manager.

    `python` is the interpreter of drivers and executors; logs and scratch files are in `folder`. All processes and web
    pages listen on the addresses of their hosts: that of the master, and one of each worker.
    """

    def __init__(
        self, folder: Path, python: Path, master: Host = LOOPBACK, workers: Sequence[Host] = (LOOPBACK,) * WORKERS
    ) -> None:
        self.folder, self._master = folder, master
        port, self._ui_port = free_ports(2)
        self.url = f"spark://{master.address}:{port}"
        self.environment = environment(folder, python)
        self._log = folder / "cluster.log"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._commands = [(master, _master(master, port, self._ui_port))]
        self._commands += [
            (host, _worker(host, self.url, folder / f"worker-{number}")) for number, host in enumerate(workers)
        ]

    def __enter__(self) -> Self:
        try:
            for host, command in self._commands:
                self._processes.append(self._start(host, command))
                self._await_alive(workers=len(self._processes) - 1)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def state(self) -> dict[str, Any]:
        """Return the state of the master, its workers and its applications, as the master reports it."""
        with _OPENER.open(f"http://{self._master.address}:{self._ui_port}/json/", timeout=5) as response:
            state: dict[str, Any] = json.load(response)
        return state

    def kill_worker(self, number: int) -> None:
        """Kill a worker and its executors."""
        os.killpg(self._processes[1 + number].pid, signal.SIGKILL)

    def submit(
        self, job: Path, *arguments: str | Path, py_files: Path, conf: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[str]":
        """Run a job with spark-submit in client mode; it starts when the cores of both workers are registered."""
        command: list[str | Path] = [SPARK_HOME / "bin" / "spark-submit", "--master", self.url, "--py-files", py_files]
        for name, value in (RESOURCES | {**conf}).items():
            command += ["--conf", f"{name}={value}"]
        return subprocess.run(
            [*command, job, *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            check=False,
            encoding="utf-8",
            timeout=SUBMIT_SECONDS,
        )

    def _start(self, host: Host, command: list[str]) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(
                host.command([SPARK_HOME / "bin" / "spark-class", *command]),
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment | {"SPARK_LOCAL_IP": host.address},
                cwd=self.folder,
                start_new_session=True,  # executors are in the process group of their worker
            )

    def _await_alive(self, workers: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if any(process.poll() is not None for process in self._processes):
                raise ClusterFailedError(f"A process of the cluster exited.\n{self._tail()}")
            with suppress(urllib.error.URLError):  # the master does not listen yet
                if self.state()["aliveworkers"] == workers:
                    return
            time.sleep(0.1)  # the interval between polls
        raise ClusterFailedError(f"No master with {workers} workers within {START_SECONDS} s.\n{self._tail()}")

    def _stop(self) -> None:
        """Terminate the workers, then the master, then the remaining processes of their process groups."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _end_group(process.pid)
        self._processes.clear()

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-60:])


def environment(folder: Path, python: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
    return inherited | {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",  # also the address of the web pages
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",  # fast start instead of peak performance
        "NUMBA_OPT": "0",  # driver and executors have different caches, and each compiles the loops
        "XDG_CACHE_HOME": str(folder / "cache"),  # of numba
    }


def _master(host: Host, port: int, ui_port: int) -> list[str]:
    main = "org.apache.spark.deploy.master.Master"
    return [main, "--host", host.address, "--port", str(port), "--webui-port", str(ui_port)]


def _worker(host: Host, url: str, folder: Path) -> list[str]:
    addresses = ["--host", host.address, "--port", "0", "--webui-port", "0"]
    resources = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder)]
    return ["org.apache.spark.deploy.worker.Worker", *addresses, *resources, url]


def _end_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
