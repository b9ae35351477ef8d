"""The command line against a live cluster, and the state that the cluster itself reports afterwards."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from offsetlake.cli import main
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.cluster.admin import ClusterAdmin, OffsetToCommit
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.pipeline import runner
from support.broker import workload
from support.broker.broker import Broker
from support.broker.tools import broker_groups, broker_offsets
from support.e2e.lakes import rows
from support.lakes import new_lake

CommittedOffsets = dict[tuple[str, int], int]
"""The committed offsets of a group by topic and partition."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command: exit code, rows on standard output, text on standard error."""

    code: int
    rows: list[dict[str, Any]]
    err: str

    def outcomes(self) -> dict[tuple[str, int] | None, str]:
        """Return the outcomes by topic and partition; the key None is the group itself."""
        return {None if row["topic"] is None else (row["topic"], row["partition"]): row["outcome"] for row in self.rows}

    def reasons(self) -> set[str | None]:
        return {row["reason"] for row in self.rows}


@dataclass(frozen=True, slots=True)
class Live:
    """A broker, and a lake of its log that every command updates."""

    broker: Broker
    lake: Path
    capsys: pytest.CaptureFixture[str]

    def plain(self, *arguments: str, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        """Run a command; return its exit code, standard output and standard error."""
        named = options or ("--bootstrap", self.broker.bootstrap)
        self.capsys.readouterr()
        return main.run([*arguments, "--lake", str(self.lake), *named]), *self.capsys.readouterr()

    def ask(self, *arguments: str, options: tuple[str, ...] = ()) -> Answer:
        """Run a command that prints rows."""
        code, out, err = self.plain(*arguments, "--format", "json", options=options)
        return Answer(code, [json.loads(line) for line in out.splitlines()], err)

    def topic(self, name: str, partitions: int = 3, records: int = 0) -> str:
        workload.create_topic(self.broker.bootstrap, name, partitions)
        if records:
            workload.produce(self.broker.bootstrap, name, records)
        return name

    def committed_offsets(self, group_id: str) -> CommittedOffsets:
        """Return the committed offsets of a group, as the broker reports them."""
        offsets = broker_offsets(self.broker.bootstrap)
        return {(topic, number): value[0] for (name, topic, number), value in offsets.items() if name == group_id}

    def offsets_with_metadata(self, group_id: str) -> dict[tuple[str, int], tuple[int, int, str]]:
        """Return committed offset, leader epoch and metadata of each offset of a group, as the broker reports them."""
        offsets = broker_offsets(self.broker.bootstrap)
        return {(topic, number): value for (name, topic, number), value in offsets.items() if name == group_id}

    def group_exists(self, group_id: str) -> bool:
        return group_id in broker_groups(self.broker.bootstrap)

    def commit(self, group_id: str, offsets: Mapping[tuple[str, int], OffsetToCommit]) -> None:
        with ClusterAdmin(KafkaConnection(bootstrap=self.broker.bootstrap)) as admin:
            assert admin.commit(group_id, offsets) == dict.fromkeys(offsets)

    def table(self, name: str, group_id: str, outcome: str) -> list[dict[str, Any]]:
        """Return the rows of `tombstones` or `alterations` of a group with an outcome."""
        decisions = rows(Lake.open(self.lake), name)
        return [row for row in decisions if row["group_id"] == group_id and row["outcome"] == outcome]


def run_to_undo(answer: Answer) -> str:
    """Return the run number of the `offsetlake restore` command that the output recommends."""
    return answer.err.rpartition("offsetlake restore --run ")[2].split()[0]


def lake_of(broker: Broker, folder: Path) -> Path:
    """Create a lake of a cluster, as the first `offsetlake run` does; return its folder."""
    # The first commit to a cluster creates its __consumer_offsets. ClusterAdmin waits for that, librdkafka does not.
    topic = f"first-{folder.name}"
    workload.create_topic(broker.bootstrap, topic, 1)
    with ClusterAdmin(KafkaConnection(bootstrap=broker.bootstrap)) as admin:
        assert admin.commit(topic, {(topic, 0): OffsetToCommit(0)}) == {(topic, 0): None}
        assert admin.delete_group(topic) is None
    catch_up(broker, folder / "lake")
    return folder / "lake"


def catch_up(broker: Broker, lake: Path) -> None:
    """Update a lake from its cluster."""
    log = LogAddress(connection=KafkaConnection(bootstrap=broker.bootstrap))
    runner.catch_up(new_lake(lake), log, lambda _: None)


def assert_as_the_broker_answers(lake: Lake, bootstrap: str) -> None:
    """Check that all offsets and groups are those that the broker reports."""
    offsets = {
        (row["group_id"], row["topic"], row["partition"]): (
            row["committed_offset"],
            -1 if row["leader_epoch"] is None else row["leader_epoch"],
            row["metadata"],
        )
        for row in rows(lake, "offsets")
    }
    assert offsets == broker_offsets(bootstrap)
    groups = {
        row["group_id"]: (row["state"], row["group_type"], row["protocol_type"] or "") for row in rows(lake, "groups")
    }
    assert groups == broker_groups(bootstrap)
