"""reset --share, cleanup and restore of share groups on a live broker, and their tables beside what the broker answers.

The expected start offsets and lags are those that `kafka-share-groups --describe` prints, and the state that the share
coordinator returns for ReadShareGroupStateSummary.
"""

import subprocess
import time
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from offsetlake.kafka.uuid import uuid_bytes
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.cluster.share_admin import ShareGroupAdmin
from offsetlake.pipeline import runner
from offsetlake.pipeline.emit.task import Emission
from offsetlake.pipeline.ingest import job as ingest
from offsetlake.pipeline.ingest import log_ends
from offsetlake.queries.share import share_partitions
from support.broker import workload
from support.broker.broker import Broker
from support.broker.kafka_tools import NEWER, java
from support.e2e.lakes import rows
from support.e2e.live import Live, lake_of, run_to_undo
from support.lakes import new_lake
from support.serve.groups_with_members import FIRST, join
from support.serve.wire_client import WireClient

pytestmark = [pytest.mark.broker, pytest.mark.long]

READ_SUMMARY = 87
MAX_ATTEMPTS = 100
Described = dict[tuple[str, int], tuple[int | None, int | None]]
"""Start offset and lag by topic and partition; None is printed as `-`."""


@pytest.fixture(scope="module")
def lake(newer_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lake_of(newer_broker, tmp_path_factory.mktemp("share-groups"))


@pytest.fixture
def live(newer_broker: Broker, lake: Path, capsys: pytest.CaptureFixture[str]) -> Live:
    return Live(newer_broker, lake, capsys)


@pytest.fixture(scope="module")
def read(newer_broker: Broker) -> str:
    """The name of a share group that has read 20 of 30 records of the first partition of a topic of the same name."""
    workload.create_topic(newer_broker.bootstrap, "share-read", 2)
    workload.produce(newer_broker.bootstrap, "share-read", 30)
    workload.share_group(newer_broker.bootstrap, "share-read", "share-read", 20)
    return "share-read"


def described(bootstrap: str, group: str) -> Described:
    """Return what `kafka-share-groups --describe --offsets` of Kafka 4.2 prints."""
    command = ("--bootstrap-server", bootstrap, "--describe", "--offsets", "--group", group)
    tool = java("org.apache.kafka.tools.consumer.group.ShareGroupCommand", *command, version=NEWER)
    out = subprocess.run(tool, capture_output=True, check=True, encoding="utf-8").stdout
    lines = [line.split() for line in out.splitlines() if line.startswith(f"{group} ")]
    numbers = [[None if text == "-" else int(text) for text in line[3:]] for line in lines]
    return {(line[1], int(line[2])): (start, lag) for line, (start, lag) in zip(lines, numbers, strict=True)}


def test_tables_have_what_the_broker_answers(live: Live, read: str, tmp_path: Path) -> None:
    log = LogAddress(connection=KafkaConnection(bootstrap=live.broker.bootstrap))
    ask = partial(log_ends.ask, KafkaConnection(bootstrap=live.broker.bootstrap))
    lake = new_lake(tmp_path / "lake")
    for lag in (10, 15):  # the topic is in the records that the ingest reads, then in the tables
        ingest.ingest(lambda: None, lake, log, lambda _: None, ask)
        runner.catch_up(lake, log, lambda _: None)
        found = share_partitions(lake, read).to_pylist()
        shown = {(row["topic"], row["partition"]): (row["start_offset"], row["lag"]) for row in found}
        assert shown == described(live.broker.bootstrap, read)
        assert shown[read, 0] == (20, lag)
        workload.produce(live.broker.bootstrap, read, 5)
    with WireClient(live.broker.bootstrap) as client:
        for row in found:
            asked = [
                {
                    "topic_id": UUID(bytes=uuid_bytes(row["topic_id"])),
                    "partitions": [{"partition": row["partition"], "leader_epoch": 0}],
                }
            ]
            answer = client.ask(READ_SUMMARY, 1, {"group_id": read, "topics": asked})
            [[summary]] = [result["partitions"] for result in answer["results"]]
            assert summary["error_code"] == 0
            assert summary["state_epoch"] == row["state_epoch"]
            assert summary["leader_epoch"] == row["leader_epoch"]
            assert summary["start_offset"] == (-1 if row["start_offset"] is None else row["start_offset"])
            count = row["delivery_complete_count"]
            assert summary["delivery_complete_count"] == (-1 if count is None else count)


@pytest.fixture
def group(live: Live, request: pytest.FixtureRequest) -> str:
    """A share group with two share partitions of a topic of the same name, both with the start offset 5."""
    name = f"share-{request.node.name}".replace("_", "-")
    live.topic(name, partitions=2, records=30)
    with share_admin(live) as admin:
        for _ in range(MAX_ATTEMPTS):  # the coordinator of the group learns of the new topic after its leader
            if set(admin.alter(name, {(name, 0): 5, (name, 1): 5}).values()) == {None}:
                return name
            time.sleep(0.1)
    pytest.fail("the coordinator does not know the topic")


def share_admin(live: Live) -> ShareGroupAdmin:
    return ShareGroupAdmin(KafkaConnection(bootstrap=live.broker.bootstrap))


def start_offsets(live: Live, group: str) -> dict[tuple[str, int], int]:
    with share_admin(live) as admin:
        return admin.start_offsets(group)


def test_start_offset_is_reset_and_restored(live: Live, read: str) -> None:
    options = ("reset", read, "--share", "--topic", f"{read}:0")
    for strategy, new in ((["--to-earliest"], 0), (["--to-latest"], 40), (["--shift-by", "-3"], 17)):
        planned = live.ask(*options, *strategy)
        assert (planned.code, planned.outcomes()) == (0, {(read, 0): "planned"})
        assert [row["committed_offset"] for row in planned.rows] == [new]
    done = live.ask(*options, "--to-offset", "7", "--execute")
    assert (done.code, done.outcomes()) == (0, {(read, 0): "done"})
    assert described(live.broker.bootstrap, read)[read, 0] == (7, None)  # Kafka 4.2.0 does not know it before a read
    [row] = live.table("alterations", read, "done")
    assert (row["group_type"], row["previous_offset"], row["committed_offset"]) == ("share", 20, 7)
    stale = live.ask(*options, "--to-latest", "--only-if", "20", "--execute")
    assert (stale.code, stale.reasons()) == (8, {"the start offset is 7 now, not 20"})
    assert live.ask("restore", "--run", run_to_undo(done), "--execute").outcomes() == {(read, 0): "done"}
    assert start_offsets(live, read)[read, 0] == 20


def test_share_group_is_cleaned_up_and_restored(live: Live, group: str) -> None:
    both, offsets = {(group, 0), (group, 1)}, {(group, 0): 5, (group, 1): 5}
    assert live.ask("cleanup", group).outcomes() == dict.fromkeys((*both, None), "planned")
    of_topic = live.ask("cleanup", group, "--topic", group, "--execute")
    assert (of_topic.code, of_topic.outcomes()) == (0, dict.fromkeys(both, "emitted"))
    assert (live.group_exists(group), start_offsets(live, group)) == (True, {})
    restored = live.ask("restore", "--run", run_to_undo(of_topic), "--execute")
    assert restored.outcomes() == dict.fromkeys(both, "done")
    assert start_offsets(live, group) == offsets
    whole = live.ask("cleanup", group, "--execute")
    assert (whole.code, whole.outcomes()) == (0, dict.fromkeys((*both, None), "emitted"))
    assert not live.group_exists(group)
    records = rows(Lake.open(live.lake), "share_state_records")
    existed = max(row["log_timestamp"] for row in records if (row["group_id"], row["kind"]) == (group, "snapshot"))
    restored = live.ask("restore", group, "--as-of", str(existed), "--topic", group, "--execute")
    assert restored.outcomes() == dict.fromkeys(both, "done")
    assert start_offsets(live, group) == offsets


def test_share_group_with_members_is_refused(live: Live, group: str) -> None:
    live.topic(FIRST)
    with WireClient(live.broker.bootstrap) as client:
        join(client, "share", group)
        for arguments in (["reset", group, "--share", "--all-topics", "--to-latest"], ["cleanup", group]):
            refused = live.ask(*arguments, "--execute")
            assert (refused.code, set(refused.outcomes().values())) == (8, {"refused"})
            assert all("it has members" in str(reason) for reason in refused.reasons())
        with share_admin(live) as admin:  # the broker refuses it, too, if a member joins after the plan
            answers = [*admin.alter(group, {(group, 0): 7}).values(), *admin.delete(group, [group]).values()]
        assert {*answers} == {"NON_EMPTY_GROUP (68): the group has active members"}
    assert start_offsets(live, group)[group, 0] == 5


def test_change_that_was_interrupted_is_recorded_by_the_next_emit(
    live: Live, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Emission, "_record", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert live.plain("reset", group, "--share", "--topic", f"{group}:0", "--to-offset", "9", "--execute")[0] != 0
    assert start_offsets(live, group) == {(group, 0): 9, (group, 1): 5}
    assert live.table("alterations", group, "done") == []
    assert live.plain("emit")[0] == 0
    assert [row["committed_offset"] for row in live.table("alterations", group, "done")] == [9]


def test_offset_that_changed_after_the_plan_is_refused(live: Live, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Emission, "_emit_partition", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert live.plain("reset", group, "--share", "--topic", f"{group}:0", "--to-offset", "9", "--execute")[0] != 0
    with share_admin(live) as admin:
        assert admin.alter(group, {(group, 0): 7}) == {(group, 0): None}
    assert live.plain("emit")[0] == 0
    [row] = live.table("alterations", group, "refused")
    assert row["reason"] == "the start offset is 7 now, not 5"
    assert start_offsets(live, group)[group, 0] == 7


def test_option_share_and_the_type_of_the_group_must_agree(live: Live, group: str) -> None:
    refused = live.ask("reset", group, "--all-topics", "--to-latest")
    assert (refused.code, "has no offsets" in refused.err) == (2, True)
    simple = live.topic("share-not")
    workload.simple_commit(live.broker.bootstrap, simple, {(simple, 0): 1})
    refused = live.ask("reset", simple, "--share", "--all-topics", "--to-latest")
    assert (refused.code, "is not a share group" in refused.err) == (2, True)
