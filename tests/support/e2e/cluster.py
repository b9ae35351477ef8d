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
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark

from support.broker.broker import free_ports

SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS = 90
STOP_SECONDS = 20
SUBMIT_SECONDS = 180
WORKERS = 2  # each with one core and one GiB

_NOT_INHERITED = ("PYTHON", "PYSPARK_", "SPARK_", "OFFSETLAKE_")  # prefixes of variables of the tests' environment
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ClusterFailedError(RuntimeError):
    """The cluster did not start; the message ends with the tail of its log."""


class Cluster:
    """Runs a cluster as a context manager.

    `python` is the interpreter of drivers and executors; logs and scratch files are in `folder`. All processes and web
    pages listen on 127.0.0.1.
    """

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder
        port, self._ui_port = free_ports(2)
        self.url = f"spark://127.0.0.1:{port}"
        self._environment = environment(folder, python)
        self._log = folder / "cluster.log"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._commands = [_master(port, self._ui_port)]
        self._commands += [_worker(self.url, folder / f"worker-{number}") for number in range(WORKERS)]

    def __enter__(self) -> Self:
        try:
            for command in self._commands:
                self._processes.append(self._start(command))
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
        with _OPENER.open(f"http://127.0.0.1:{self._ui_port}/json/", timeout=5) as response:
            state: dict[str, Any] = json.load(response)
        return state

    def submit(
        self, job: Path, *arguments: str | Path, py_files: Path, jars: Sequence[Path], conf: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[str]":
        """Run a job with spark-submit in client mode; it starts when the cores of both workers are registered."""
        settings = {
            "spark.cores.max": str(WORKERS),
            "spark.executor.memory": "512m",
            "spark.scheduler.minRegisteredResourcesRatio": "1",
            **conf,
        }
        command: list[str | Path] = [SPARK_HOME / "bin" / "spark-submit", "--master", self.url, "--py-files", py_files]
        command += ["--jars", ",".join(map(str, jars))]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        return subprocess.run(
            [*command, job, *arguments],
            env=self._environment,
            cwd=self.folder,
            capture_output=True,
            check=False,
            encoding="utf-8",
            timeout=SUBMIT_SECONDS,
        )

    def _start(self, command: list[str]) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
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
        "XDG_CACHE_HOME": str(folder / "cache"),  # of numba
    }


def _master(port: int, ui_port: int) -> list[str]:
    main = "org.apache.spark.deploy.master.Master"
    return [main, "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui_port)]


def _worker(url: str, folder: Path) -> list[str]:
    addresses = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    resources = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder)]
    return ["org.apache.spark.deploy.worker.Worker", *addresses, *resources, url]


def _end_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
