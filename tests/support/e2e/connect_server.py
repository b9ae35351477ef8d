"""A Spark Connect server on loopback, from the pyspark package."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.broker.broker import free_ports
from support.e2e.cluster import SPARK_HOME, environment

START_SECONDS = 180  # more than a start takes while the machine runs other tests
STOP_SECONDS = 20

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def connect_server(folder: Path, python: Path, master: str = "local[2]") -> Iterator[str]:
    """Run a server and yield its address; `python` is the interpreter of its tasks."""
    (port,) = free_ports(1)
    settings = {
        "spark.master": master,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--class", _SERVER]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    log = folder / "connect.log"
    with log.open("ab") as output:
        server = subprocess.Popen(
            [*command, "spark-internal"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(folder, python) | {"SPARK_DAEMON_MEMORY": "1g"},
            cwd=folder,
        )
    try:
        _await_listening(server, port, log)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _await_listening(server: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)  # the interval between attempts
        else:
            return
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-60:])
    raise RuntimeError(f"No Spark Connect server within {START_SECONDS} s.\n{tail}")
