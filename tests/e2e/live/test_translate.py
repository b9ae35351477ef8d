"""Groups continue at a cluster to which the real MirrorMaker 2 replicates: every record is counted."""

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from offsetlake.cli import main
from offsetlake.log.cluster.admin import ClusterAdmin, OffsetToCommit
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.pipeline.changes.translation import record_search
from support.broker import workload
from support.broker.broker import START_SECONDS, Broker, free_ports
from support.e2e.live import Answer, catch_up, lake_of, run_to_undo
from support.mirror.mirror_maker import SOURCE, MirrorMaker

pytestmark = [pytest.mark.broker, pytest.mark.long]

TOPIC, REPLICA, EQUAL = "orders", f"{SOURCE}.orders", "equal"
COLUMNS = Path(__file__).parents[2] / "fixtures" / "columns.json"
KILLED = """
import os, signal, sys
from offsetlake.cli import main
from offsetlake.log.cluster.admin import ClusterAdmin

commit = ClusterAdmin.commit

def killed(*arguments):
    if sys.argv[1] == "after":
        commit(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

ClusterAdmin.commit = killed
main.run(sys.argv[2:])
"""
"""A program that is killed before or after its first commit at the target."""
PORTIONS, PORTION = 8, 250
"""The records of each partition are written in portions; each contains offset syncs."""
ENDS = {0: PORTIONS * PORTION, 1: PORTION}


@dataclass(frozen=True, slots=True)
class Clusters:
    """A cluster, a replica of it, and a lake of each."""

    source: Broker
    target: Broker
    source_lake: Path
    target_lake: Path
    capsys: pytest.CaptureFixture[str]

    def ask(self, *arguments: str) -> Answer:
        """Run `offsetlake translate`."""
        return self._run(*self.command(*arguments))

    def command(self, *arguments: str) -> list[str]:
        """Return the arguments of `offsetlake translate`."""
        lakes = ["--lake", str(self.source_lake), "--to-lake", str(self.target_lake)]
        return ["translate", *arguments, *lakes, "--to", self.target.bootstrap]

    def lag(self) -> Answer:
        """Run `offsetlake lag --standby`."""
        return self._run("lag", "--lake", str(self.source_lake), "--standby", str(self.target_lake))

    def undo(self, answer: Answer) -> Answer:
        """Run the command that undoes a translation."""
        lake = ("--lake", str(self.target_lake), "--bootstrap", self.target.bootstrap)
        return self._run("restore", "--run", run_to_undo(answer), "--execute", *lake)

    def at_target(self, group: str) -> dict[tuple[str, int], int]:
        """Return the committed offsets of a group as the target reports them."""
        with ClusterAdmin(KafkaConnection(bootstrap=self.target.bootstrap)) as admin:
            return {where: offset.offset for where, offset in admin.committed(group).items()}

    def _run(self, *arguments: str) -> Answer:
        self.capsys.readouterr()
        code = main.run([*arguments, "--format", "json"])
        out, err = self.capsys.readouterr()
        return Answer(code, [json.loads(line) for line in out.splitlines()], err)


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker, Path, Path]]:
    """Two brokers, between which MirrorMaker 2 replicates, and their lakes."""
    folder = tmp_path_factory.mktemp("mirrored")
    for name in ("source", "target", "source-lake", "target-lake"):
        (folder / name).mkdir()
    with Broker(folder / "source") as source, Broker(folder / "target") as target:
        for topic in (TOPIC, EQUAL):
            workload.create_topic(source.bootstrap, topic, 2)
        with MirrorMaker(folder, source, target, f"{TOPIC}|{EQUAL}") as maker:
            for portion in range(PORTIONS):
                _produce(source, 0, portion)
                maker.await_end(REPLICA, 0, (portion + 1) * PORTION)
            _produce(source, 1, 0)
            _produce_equal(source)
            maker.await_end(REPLICA, 1, PORTION)
            for number in range(2):
                maker.await_end(f"{SOURCE}.{EQUAL}", number, 100)
            maker.await_syncs({(TOPIC, number): end for number, end in ENDS.items()} | {(EQUAL, 0): 1, (EQUAL, 1): 1})
            yield source, target, lake_of(source, folder / "source-lake"), lake_of(target, folder / "target-lake")


@pytest.fixture
def clusters(mirrored: tuple[Broker, Broker, Path, Path], capsys: pytest.CaptureFixture[str]) -> Clusters:
    return Clusters(*mirrored, capsys)


@pytest.mark.parametrize(
    ("known", "processed"),
    [
        *(("syncs", processed) for processed in (0, 1, 777, ENDS[0] - 1, ENDS[0])),
        *(("records", processed) for processed in (0, 777, ENDS[0])),
        ("both", 777),
    ],
)
def test_no_record_is_skipped_and_as_many_are_read_twice_as_planned(
    clusters: Clusters, lost: Sequence[str], known: str, processed: int
) -> None:
    group = f"checkout-{known}-{processed}"
    first = _read(clusters.source, group, TOPIC, {0: (0, processed), 1: (0, PORTION)})
    catch_up(clusters.source, clusters.source_lake)
    options = {"syncs": [*lost, "--syncs-at", "target"], "records": [], "both": ["--syncs-at", "target"]}[known]
    planned = clusters.ask(group, *options)
    assert (planned.code, clusters.at_target(group)) == (0, {})
    done = clusters.ask(group, *options, "--execute")
    assert (done.code, done.outcomes()) == (0, {(REPLICA, 0): "done", (REPLICA, 1): "done"})
    verdicts = {row["verdict"] for row in done.rows}
    assert verdicts == {"exact"} if known != "syncs" or processed in (0, 1, ENDS[0]) else verdicts <= {"exact", "safe"}
    of_changes = json.loads(COLUMNS.read_text(encoding="utf-8"))["questions"]["undelete"]
    added = ["source_topic", "source_offset", "verdict", "read_twice", "skipped"]
    assert {tuple(row) for row in (*planned.rows, *done.rows)} == {(*list(of_changes)[:-1], *added, "difference")}
    assert _decided(done.rows) == _decided(planned.rows)
    starts = {row["partition"]: row["committed_offset"] for row in done.rows}
    assert clusters.at_target(group) == {(REPLICA, number): offset for number, offset in starts.items()}
    second = _read(clusters.target, group, REPLICA, {number: (starts[number], end) for number, end in ENDS.items()})
    every = {(number, value) for number, end in ENDS.items() for value in range(end)}
    assert (first + second).keys() == every, "no record is skipped"
    assert max((first + second).values()) <= 2
    assert (first & second).total() == sum(row["read_twice"] for row in done.rows)
    assert sum(row["read_twice"] for row in done.rows if row["verdict"] == "exact") == 0


def test_at_most_once_reads_no_record_twice_and_skips_no_more_than_planned(
    clusters: Clusters, lost: Sequence[str]
) -> None:
    group, processed = "at-most-once", 777
    first = _read(clusters.source, group, TOPIC, {0: (0, processed)})
    catch_up(clusters.source, clusters.source_lake)
    done = clusters.ask(group, *lost, "--syncs-at", "target", "--at-most-once", "--execute")
    [row] = done.rows
    assert (done.code, row["verdict"], row["outcome"], row["read_twice"]) == (0, "ahead", "done", 0)
    second = _read(clusters.target, group, REPLICA, {0: (row["committed_offset"], ENDS[0])})
    assert not first & second, "no record is read twice"
    assert ENDS[0] - (first + second).total() <= row["skipped"]


def test_equal_records_are_distinguished_by_their_timestamps_or_not_at_all(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_search, "MAX_AT_ONCE", 1)
    group = "console-consumer-1"  # MirrorMaker writes no checkpoints of groups with such names
    _commit(clusters.source, group, {(EQUAL, 0): 50, (EQUAL, 1): 55})
    none, some = clusters.ask(group).rows
    assert (none["verdict"], some["verdict"], some["committed_offset"]) == ("unknown", "exact", 55)
    assert some["evidence"] == "equal-1 at 55: the same records at offsets 35 to 74"
    by_syncs, _ = clusters.ask(group, "--syncs-at", "target").rows
    assert (by_syncs["verdict"], by_syncs["read_twice"]) == ("safe", 50 - by_syncs["committed_offset"])


def test_a_translation_is_undone(clusters: Clusters) -> None:
    group = "undone"
    _commit(clusters.source, group, {(TOPIC, 0): 100, (TOPIC, 1): 100})
    _commit(clusters.target, group, {(REPLICA, 0): 7})
    done = clusters.ask(group, "--execute")
    assert done.outcomes() == {(REPLICA, 0): "done", (REPLICA, 1): "done"}
    assert clusters.ask(group).outcomes() == {(REPLICA, 0): "unchanged", (REPLICA, 1): "unchanged"}
    assert clusters.undo(done).code == 0
    assert clusters.at_target(group) == {(REPLICA, 0): 7}


def test_a_group_with_members_at_the_target_is_refused(clusters: Clusters) -> None:
    group = "running"
    _commit(clusters.source, group, {(TOPIC, 0): 100})
    with closing(workload.member(clusters.target.bootstrap, group, {(REPLICA, 0): 3}, "classic")):
        refused = clusters.ask(group, "--execute")
        assert (refused.code, refused.outcomes()) == (8, {(REPLICA, 0): "refused"})
        assert "it has members: rdkafka" in str(refused.reasons())
    assert clusters.at_target(group) == {(REPLICA, 0): 3}


def test_an_offset_of_a_topic_that_is_not_replicated_is_refused(clusters: Clusters) -> None:
    workload.create_topic(clusters.source.bootstrap, "private", 1)
    _commit(clusters.source, "other", {("private", 0): 1, (TOPIC, 1): PORTION})
    done = clusters.ask("other", "--execute")
    assert (done.code, done.outcomes()) == (8, {("private", 0): "refused", (REPLICA, 1): "done"})
    assert [row["verdict"] for row in done.rows] == ["exact", "unknown"]


def test_offset_syncs_of_the_other_direction_are_not_believed(clusters: Clusters) -> None:
    _commit(clusters.source, "both-ways", {(TOPIC, 0): 100})
    assert clusters.ask("both-ways", "--syncs-at", "target").code == 0
    other = "mm2-offset-syncs.standby.internal"
    workload.create_topic(clusters.source.bootstrap, other, 1)
    refused = clusters.ask("both-ways", "--syncs-at", "target")
    assert refused.code == 2
    assert f"may have written mm2-offset-syncs.{SOURCE}.internal at {clusters.target.bootstrap}" in refused.err
    assert clusters.ask("both-ways", "--syncs-at", "target", "--alias", SOURCE).code == 0
    admin = AdminClient({"bootstrap.servers": clusters.source.bootstrap})
    admin.delete_topics([other])[other].result(timeout=START_SECONDS)


def test_the_offsets_of_an_earlier_time_are_translated(clusters: Clusters) -> None:
    _commit(clusters.source, "earlier", {(TOPIC, 0): 500})
    instant = time.time_ns() // 1_000_000
    _commit(clusters.source, "earlier", {(TOPIC, 0): 900, (TOPIC, 1): 10})
    planned = clusters.ask("earlier", "--as-of", str(instant))
    assert [row["source_offset"] for row in planned.rows] == [500]
    assert [row["source_offset"] for row in clusters.ask("earlier").rows] == [900, 10]


@pytest.fixture
def lost(tmp_path: Path) -> Sequence[str]:
    """Return options with which the source does not respond."""
    (tmp_path / "client.properties").write_text("request.timeout.ms=1000\n", encoding="utf-8")
    return ("--bootstrap", f"127.0.0.1:{free_ports(1)[0]}", "--kafka-config", str(tmp_path / "client.properties"))


def test_checkpoints_are_used_if_the_source_is_lost(clusters: Clusters, lost: Sequence[str]) -> None:
    group = "survivor"
    first = _read(clusters.source, group, TOPIC, {0: (0, 700)})
    catch_up(clusters.source, clusters.source_lake)
    deadline = time.monotonic() + START_SECONDS
    while (planned := clusters.ask(group, *lost)).rows[0]["verdict"] == "unknown":  # until there is a checkpoint
        assert "the log of the source cannot be read" in planned.err
        assert time.monotonic() < deadline
    done = clusters.ask(group, *lost, "--execute")
    [row] = done.rows
    assert (done.code, row["verdict"], row["outcome"]) == (0, "safe", "done")
    assert re.fullmatch(r"orders-0 at 700: checkpoint 700 = \d+", row["evidence"])
    second = _read(clusters.target, group, REPLICA, {0: (row["committed_offset"], ENDS[0])})
    assert (first + second).keys() == {(0, value) for value in range(ENDS[0])}, "no record is skipped"
    assert (first & second).total() <= row["read_twice"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_translation_is_repeated_with_the_same_result(clusters: Clusters, when: str) -> None:
    groups = [f"killed-{when}-{number}" for number in range(2)]
    for group in groups:
        _commit(clusters.source, group, {(TOPIC, 0): 600, (TOPIC, 1): 100})
    planned = clusters.ask(f"killed-{when}-*")
    wanted = {
        group: {
            (REPLICA, row["partition"]): row["committed_offset"] for row in planned.rows if row["group_id"] == group
        }
        for group in groups
    }
    command = clusters.command(f"killed-{when}-*", "--execute")
    assert subprocess.run([sys.executable, "-c", KILLED, when, *command], check=False).returncode == -signal.SIGKILL
    written = {group: offsets for group in groups if (offsets := clusters.at_target(group))}
    assert len(written) == (when == "after")
    assert written.items() <= wanted.items()
    again = clusters.ask(f"killed-{when}-*", "--execute")
    assert (again.code, {group: clusters.at_target(group) for group in groups}) == (0, wanted)
    emit = ["emit", "--lake", str(clusters.target_lake), "--bootstrap", clusters.target.bootstrap]
    assert main.run(emit) == 0
    assert {group: clusters.at_target(group) for group in groups} == wanted


def test_a_standby_follows_until_its_groups_are_used(clusters: Clusters) -> None:
    workload.create_topic(clusters.source.bootstrap, "unreplicated", 1)
    for group in ("standby", "taken-over"):
        _commit(clusters.source, group, {(TOPIC, 0): 300, ("unreplicated", 0): 1})
    options = ("--continuous", "--execute")
    first = [clusters.ask(group, *options) for group in ("standby", "taken-over")]
    assert [(answer.code, answer.outcomes()) for answer in first] == [(0, {(REPLICA, 0): "done"})] * 2
    assert "1 of 2 offsets cannot be translated" in first[0].err
    workload.member(clusters.target.bootstrap, "taken-over", {(REPLICA, 0): 900}, "classic").close()
    for group in ("standby", "taken-over"):
        _commit(clusters.source, group, {(TOPIC, 0): 400})
    second = [clusters.ask(group, *options) for group in ("standby", "taken-over")]
    assert [(answer.code, answer.outcomes()) for answer in second] == [(0, {(REPLICA, 0): "done"}), (0, {})]
    assert clusters.at_target("standby") == {(REPLICA, 0): 400}
    catch_up(clusters.source, clusters.source_lake)
    rows = {(row["group_id"], row["topic"]): row for row in clusters.lag().rows}
    assert (rows["standby", TOPIC]["translated_offset"], rows["standby", TOPIC]["not_translated"]) == (400, 0)
    assert rows["standby", "unreplicated"]["not_translated"] is None
    assert rows["taken-over", TOPIC]["translated_offset"] is None, "the offset was changed by its consumers"
    assert clusters.at_target("taken-over") == {(REPLICA, 0): 900}


def _produce(broker: Broker, partition: int, portion: int) -> None:
    """Write a portion of records, whose values are their offsets."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(portion * PORTION, (portion + 1) * PORTION):
        producer.produce(TOPIC, str(number).encode(), partition=partition)
    assert producer.flush(workload.ANSWER_SECONDS) == 0


def _produce_equal(broker: Broker) -> None:
    """Write 100 equal records to each partition; in partition 1, ten each have the same timestamp."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    began = time.time_ns() // 1_000_000
    for number in range(100):
        for partition in range(2):
            producer.produce(EQUAL, b"equal", partition=partition, timestamp=began + partition * (number // 10))
    assert producer.flush(workload.ANSWER_SECONDS) == 0


def _read(broker: Broker, group: str, topic: str, ranges: dict[int, tuple[int, int]]) -> Counter[tuple[int, int]]:
    """Read records as a consumer that begins at its committed offsets; commit, and count the records.

    The ranges are the expected first offset and the offset after the last, by partition.
    """
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    counts = Counter[tuple[int, int]]()
    with closing(Consumer({**settings, "enable.auto.commit": False})) as consumer:
        for number, (start, end) in ranges.items():
            where = TopicPartition(topic, number)
            [committed] = consumer.committed([where], timeout=workload.ANSWER_SECONDS)
            assert max(committed.offset, 0) == start
            consumer.assign([TopicPartition(topic, number, start)])
            for position in range(start, end):
                message = consumer.poll(workload.ANSWER_SECONDS)
                assert message is not None
                assert (message.error(), message.offset()) == (None, position)
                counts[number, int(message.value() or b"")] += 1
            consumer.commit(offsets=[TopicPartition(topic, number, end)], asynchronous=False)
    return counts


def _commit(broker: Broker, group: str, offsets: dict[tuple[str, int], int]) -> None:
    with ClusterAdmin(KafkaConnection(bootstrap=broker.bootstrap)) as admin:
        wanted = {where: OffsetToCommit(offset) for where, offset in offsets.items()}
        assert admin.commit(group, wanted) == dict.fromkeys(offsets)


def _decided(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    names = ("topic", "partition", "source_offset", "committed_offset", "verdict", "read_twice", "evidence")
    return [tuple(row[name] for name in names) for row in rows]
