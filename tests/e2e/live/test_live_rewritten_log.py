"""A real broker that loses records that were read: a restored disk, and a topic that is deleted and created again."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from offsetlake.cli import main
from offsetlake.lake.lake import Lake
from offsetlake.pipeline import runner
from support.broker import workload
from support.broker.broker import Broker
from support.e2e.in_process import NoSpark
from support.e2e.lakes import rows, state
from support.e2e.live import assert_as_the_broker_answers

pytestmark = [pytest.mark.broker, pytest.mark.long]

TOPIC = "rewritten"
ONE_PARTITION = {"offsets.topic.num.partitions": "1"}


class Reading:
    """A lake over the live cluster, and one over a copy of the broker's folder."""

    def __init__(self, broker: Broker, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.broker, self.folder, self.capsys = broker, folder, capsys
        self.lakes = {"live": folder / "live", "folder": folder / "folder"}

    def run(self, name: str) -> tuple[int, str]:
        log = ["--bootstrap", self.broker.bootstrap]
        if name == "folder":
            shutil.rmtree(self.folder / "log", ignore_errors=True)
            shutil.copytree(self.broker.data_dir, self.folder / "log")
            log = ["--log", str(self.folder / "log")]
        self.capsys.readouterr()
        return main.run(["run", "--lake", str(self.lakes[name]), *log]), self.capsys.readouterr().err

    def assert_read(self) -> None:
        for name, lake in self.lakes.items():
            code, err = self.run(name)
            assert code == 0, err
            assert_as_the_broker_answers(Lake.open(lake), self.broker.bootstrap)

    def assert_refused(self, reason: str) -> None:
        """Both lakes are refused and stay as they are; the printed command reads the log into a new one."""
        for name, lake in self.lakes.items():
            before = state(Lake.open(lake))
            code, err = self.run(name)
            assert code == 4, err
            assert re.search(reason, err), err
            assert state(Lake.open(lake)) == before
            printed = re.search(r"`offsetlake (run --lake .*?)`", err)
            if printed is not None:
                assert main.run(shlex.split(printed[1])) == 0
                assert_as_the_broker_answers(Lake.open(f"{lake}-new"), self.broker.bootstrap)
                shutil.rmtree(f"{lake}-new")


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LazySession", NoSpark)


def commit(broker: Broker, group: str, count: int) -> None:
    for number in range(count):
        workload.simple_commit(broker.bootstrap, group, {(TOPIC, 0): number})


def test_restored_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broker").mkdir()
    with Broker(tmp_path / "broker", ONE_PARTITION) as broker:
        reading = Reading(broker, tmp_path, capsys)
        workload.create_topic(broker.bootstrap, TOPIC, 1)
        commit(broker, "kept", 3)
        broker.stop()
        backup = tmp_path / "backup"
        shutil.copytree(broker.data_dir / "__consumer_offsets-0", backup)
        broker.start()
        commit(broker, "lost", 4)
        reading.assert_read()
        reading.assert_read()  # nothing new
        broker.stop()
        shutil.rmtree(broker.data_dir / "__consumer_offsets-0")
        shutil.copytree(backup, broker.data_dir / "__consumer_offsets-0")
        broker.start()
        reading.assert_refused("ends at offset .*it lost records")
        commit(broker, "new", 9)
        reading.assert_refused("was written again")
        assert {row["group_id"] for row in rows(Lake.open(reading.lakes["live"]), "offsets")} == {"kept", "lost"}


def test_topic_that_is_deleted_and_created_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broker").mkdir()
    with Broker(tmp_path / "broker", ONE_PARTITION) as broker:
        reading = Reading(broker, tmp_path, capsys)
        workload.create_topic(broker.bootstrap, TOPIC, 1)
        commit(broker, "lost", 3)
        reading.assert_read()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics(["__consumer_offsets"])["__consumer_offsets"].result(60)
        commit(broker, "new", 9)
        reading.assert_refused("was written again")
