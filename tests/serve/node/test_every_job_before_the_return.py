"""What no command may prevent: `return`, after each job and change, also with a lake that cannot be used."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.broker.kafka_tools import NEWER, java
from support.broker.workload import create_topic, simple_commit
from support.serve.adopted import Adopted, committed, until

pytestmark = pytest.mark.long  # a broker of its own, whose groups are adopted

TOPIC, GROUP, SHARE_GROUP, SECONDS = "before-return", "moved", "sharing", 180
JOBS = (
    "run",
    f"reset {GROUP} --topic {TOPIC}:0 --to-offset 4 --execute",
    "cleanup deleted-group --execute",
    "undelete deleted-group --execute",
    "repair",
    "run --emit",
    "maintain",
    "check --full",
    "rebuild --table offsets",
    "forget --principal User:nobody --execute",
)
LOGS = {"run", "maintain", "reset", "cleanup", "undelete", "repair"}
"""The commands that read or write a log."""


def offsetlake(*arguments: str) -> tuple[int, str]:
    """Run a command as its users do; return its exit code and output."""
    command = [sys.executable, "-m", "offsetlake.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    return done.returncode, done.stdout + done.stderr


def test_groups_are_given_back_after_every_job(tmp_path: Path) -> None:
    """Live share groups are named before; a lake of the node is not read from the cluster, and has lag without it."""
    adopted = Adopted(tmp_path, version=NEWER, **{"group.share.max.size": "10"})
    place = ["--lake", str(tmp_path / "lake")]
    with adopted.broker as broker:
        create_topic(broker.bootstrap, TOPIC, 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(9):
            producer.produce(TOPIC, str(number))
        assert producer.flush(SECONDS) == 0
        for group in (GROUP, "deleted-group"):
            simple_commit(broker.bootstrap, group, {(TOPIC, 0): 3})
        sharing = subprocess.Popen(
            java(
                "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
                "--bootstrap-server", broker.bootstrap, "--topic", TOPIC, "--group", SHARE_GROUP,
                version=NEWER,
            ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            named = f"share group {SHARE_GROUP} (Stable)"
            until(lambda: named in " ".join(adopted.adopt()[1].split()), True)
            code, output = adopted.adopt("--execute")
            assert (code, named in " ".join(output.split())) == (8, True), output
            assert not adopted.is_owned()
            code, output = adopted.adopt("--execute", "--end-unserved-groups")
            assert code == 0, output
        finally:
            sharing.kill()
            sharing.wait()
        with adopted.serving():
            code, output = offsetlake("run", *place, "--bootstrap", broker.bootstrap)
            assert (code, f"--log {adopted.log}" in " ".join(output.split())) == (4, True), output
            for job in JOBS:
                where = [*place, "--log", str(adopted.log)] if job.split()[0] in LOGS else place
                code, output = offsetlake(*job.split(), *where)
                assert code == 0, (job, output)
            code, output = offsetlake("lag", *place, "--group", GROUP, "--partitions", "--format", "json")
            assert code == 0, output
            assert [json.loads(line)["lag"] for line in output.splitlines() if line.startswith("{")] == [5]
            expected = committed(broker.bootstrap, [GROUP])
        with adopted.serving() as serving:  # a start that reads the lake again
            assert committed(serving.bootstrap, [GROUP]) == expected == {GROUP: {(TOPIC, 0): 4}}
        (tmp_path / "lake" / "runs" / "_delta_log" / f"{0:020}.json").write_text("{", encoding="utf-8")
        code, output = adopted.move("return", "--execute")
        assert code == 0, output
        until(lambda: committed(broker.bootstrap, [GROUP]), expected)
