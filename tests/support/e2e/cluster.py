"""A Spark standalone cluster on loopback, from pyspark's own package: a master and workers, and spark-submit to it."""

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
WORKERS = 2  # of one core and one GiB each

_OURS = ("PYTHON", "PYSPARK_", "SPARK_", "OFFSETLAKE_")  # variables that would lend the cluster what is set up here
_ASK = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ClusterFailedError(RuntimeError):
    """The cluster did not come up; the message ends with the tail of its log."""


class Cluster:
    """Runs inside `with`; `python` is the interpreter of drivers and executors, `folder` takes logs and scratch files.

    Everything listens on 127.0.0.1, web pages included.
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
        """What the master says of itself, its workers and applications."""
        with _ASK.open(f"http://127.0.0.1:{self._ui_port}/json/", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def submit(
        self, job: Path, *arguments: str | Path, py_files: Path, jars: Sequence[Path], conf: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[str]":
        """Run a job with spark-submit in client mode, both workers' cores ready before it begins."""
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
                start_new_session=True,  # executors are of a worker's process group, and end with it
            )

    def _await_alive(self, workers: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if any(process.poll() is not None for process in self._processes):
                raise ClusterFailedError(f"a process of the cluster ended\n{self._tail()}")
            with suppress(urllib.error.URLError):  # the master does not listen yet
                if self.state()["aliveworkers"] == workers:
                    return
            time.sleep(0.1)  # then it is asked again
        raise ClusterFailedError(f"no master with {workers} workers within {START_SECONDS} s\n{self._tail()}")

    def _stop(self) -> None:
        """End workers, then the master; then what may be left of their process groups."""
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
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return inherited | {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",  # where web pages listen too
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",  # short lives: do not optimize for long
        "XDG_CACHE_HOME": str(folder / "cache"),  # numba's
    }


def _master(port: int, ui_port: int) -> list[str]:
    main = "org.apache.spark.deploy.master.Master"
    return [main, "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui_port)]


def _worker(url: str, folder: Path) -> list[str]:
    listens = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    has = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder)]
    return ["org.apache.spark.deploy.worker.Worker", *listens, *has, url]


def _end_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
