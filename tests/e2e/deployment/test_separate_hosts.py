"""A driver and two workers on separate hosts, with the lake in an object store; only the log is a folder they share.

The driver is started as a command, not by spark-submit; its settings name the cluster.
"""

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from offsetlake.lake.lake import Lake
from support.e2e.cluster import RESOURCES, Cluster, Host
from support.e2e.in_process import InProcess
from support.e2e.lakes import LATER, cycle, plan_expiry, state
from support.e2e.separate_hosts import available, separate_hosts
from support.e2e.wheel import build_wheel, make_environment
from support.object_store.server import client_environment, s3_server
from support.oracle.random_logs import random_log

pytestmark = [
    pytest.mark.long,
    pytest.mark.jvm,
    pytest.mark.skipif(not available(), reason="needs root, to create network namespaces"),
]


def test_run_with_a_killed_worker_gives_the_same_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_environment(tmp_path / "python")
    python = tmp_path / "python" / "bin" / "python"
    wheel = build_wheel(tmp_path)
    program = wheel.rename(wheel.with_suffix(".zip"))
    log = tmp_path / "log"
    random_log(random.Random(25), 2_000, groups=30, log_partitions=6).write(log)
    (tmp_path / "cluster").mkdir()
    with separate_hosts(4) as (here, driver, *workers), s3_server(tmp_path, here.address) as store:
        for name, value in client_environment(store.endpoint).items():
            monkeypatch.setenv(name, value)  # as the roles of machines: of the driver and of the workers
        lake = f"s3://{store.new_bucket()}/lake"
        with Cluster(tmp_path / "cluster", python, here, workers) as cluster:
            properties = RESOURCES | {"spark.submit.pyFiles": str(program)}
            lines = [f'"{name}" = "{value}"' for name, value in properties.items()]
            settings = tmp_path / "settings.toml"
            settings.write_text("\n".join(["[spark]", f'master = "{cluster.url}"', *lines]), encoding="utf-8")
            variables = cluster.environment | {"PYTHONPATH": str(program), "SPARK_LOCAL_IP": driver.address}
            options = ["--lake", lake, "--log", log, "--now", str(LATER), "--config", settings]
            command = driver.command([python, "-m", "offsetlake.cli", "run", *options])
            with (tmp_path / "driver.log").open("wb") as output:
                running = subprocess.Popen(command, env=variables, cwd=tmp_path, stdout=output, stderr=output)
            try:
                while running.poll() is None and not has_committed(lake):
                    time.sleep(0.1)  # the interval between polls
                assert running.poll() is None, (tmp_path / "driver.log").read_text(encoding="utf-8")
                assert cluster.state()["activeapps"], "the jobs do not run on the cluster"
                cluster.kill_worker(0)
                running.wait()
            finally:
                running.kill()
                running.wait()
        assert running.returncode == 0, (tmp_path / "driver.log").read_text(encoding="utf-8")
        local = Lake.create(tmp_path / "local")
        cycle(InProcess(), local, log)
        plan_expiry(InProcess(), local)
        assert state(Lake.open(lake)) == state(local)


def test_hosts_of_another_run_stay_and_those_of_a_killed_run_are_removed() -> None:
    code = "import time; from support.e2e.separate_hosts import separate_hosts as hosts\n"
    code += "with hosts(3) as (_, host, other): print(host.address, other.namespace, flush=True); time.sleep(600)"
    with separate_hosts(2) as (_, own):
        command = [sys.executable, "-c", code]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            address, namespace = other.stdout.readline().split()
            left = subprocess.Popen(["ip", "netns", "exec", namespace, "sleep", "600"])
            other.kill()
        assert address != own.address
        assert reaches(own, own.address)
        with separate_hosts(2) as (here, again):
            assert left.wait() == -signal.SIGKILL
            assert (again.address, reaches(again, here.address)) == (address, True)
        assert reaches(own, own.address)
    assert not [*Path("/run/netns").glob(f"{namespace.partition('-')[0]}-*")]


def reaches(host: Host, address: str) -> bool:
    """Check whether a host has a route to an address, and the address answers: its port refuses a connection."""
    code = f"import socket; print(socket.socket().connect_ex(('{address}', 1)))"
    done = subprocess.run(host.command([sys.executable, "-c", code]), capture_output=True, text=True, check=True)
    return int(done.stdout) == errno.ECONNREFUSED


def has_committed(lake: str) -> bool:
    """Check whether the ingest has committed to the lake; the other jobs of the run follow."""
    try:
        return Lake.open(lake).count("offset_commits") > 0
    except Exception:  # noqa: BLE001 - the lake is being created
        return False
