"""The parts of a broker without a cluster: copies of partitions, epochs, listeners, identity, leader epochs."""

import asyncio
import socket
import struct
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from offsetlake.errors import BadRequest, CorruptBatch, LogBusy, LogMismatch, LogUnavailable, Refused
from offsetlake.kafka.batches.writer import record_batch
from offsetlake.kafka.error_codes import (
    FENCED_LEADER_EPOCH,
    INVALID_UPDATE_VERSION,
    NEW_LEADER_ELECTED,
    NOT_CONTROLLER,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
)
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.writer.appender import Appender
from offsetlake.log.writer.appending import appending
from offsetlake.node import any_node, listeners
from offsetlake.node.controllers import DESCRIBE_QUORUM, Controllers
from offsetlake.node.handover import adoption, follower, partition_copy
from offsetlake.node.handover.isr import IsrChange, alter_isr
from offsetlake.node.handover.partition_copy import PartitionCopy
from offsetlake.node.handover.returning import check_returned, complete_identity
from offsetlake.node.handover.topic_names import unused_names
from offsetlake.node.identity import Identity, with_adopted_log
from offsetlake.node.leadership import Leadership
from offsetlake.node.registration import Registration
from offsetlake.serve.protocol.api_keys import FORWARDED, RELAYED
from offsetlake.serve.protocol.request_limits import check_frame_size
from offsetlake.serve.protocol.wire import Malformed
from offsetlake.serve.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

SECONDS = 30
IDENTITY = Identity.new("cluster", 7, bytes(16), [[1], [1, 2]])


def batch(base: int, records: int = 2, epoch: int = 3) -> bytes:
    data = record_batch(5, [(b"key", b"value")] * records).data
    struct.pack_into(">q", data, 0, base)
    struct.pack_into(">i", data, 12, epoch)
    return bytes(data)


def test_copy_has_the_bytes_of_the_leader_and_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets have gaps where records were compacted away; a batch at the end of a response may be incomplete."""
    monkeypatch.setattr(partition_copy, "SEGMENT_BYTES", 150)
    batches = [batch(0), batch(10, epoch=4), batch(12), batch(40, epoch=6)]
    copy = PartitionCopy(tmp_path / "p")
    assert (copy.end, copy.epoch) == (0, -1)
    assert copy.append(b"".join(batches[:2]) + batches[2][:-1]) == 2
    assert (copy.end, copy.epoch) == (12, 4)
    copy = PartitionCopy(tmp_path / "p")
    assert (copy.end, copy.epoch) == (12, 4)
    assert [copy.append(each) for each in (b"", batches[2], batches[3])] == [0, 1, 1]
    assert (copy.end, copy.epoch) == (42, 6)
    files = sorted((tmp_path / "p").iterdir())
    assert [int(file.stem) for file in files] == [0, 12, 14][: len(files)]
    assert len(files) > 1
    assert b"".join(file.read_bytes() for file in files) == b"".join(batches)


def test_copy_refuses_damage_and_begins_again_elsewhere(tmp_path: Path) -> None:
    copy = PartitionCopy(tmp_path / "p")
    copy.append(batch(5))
    damaged = bytearray(batch(7))
    damaged[-1] ^= 1
    for data, cause in ((bytes(damaged), "wrong checksum"), (batch(6), "precedes 7")):
        with pytest.raises(CorruptBatch, match=cause):
            copy.append(data)
    copy.restart(100)
    assert (copy.end, copy.epoch) == (100, -1)
    copy.append(batch(100))
    assert [file.name for file in (tmp_path / "p").iterdir()] == [f"{100:020}.log"]


def test_copy_of_a_partition_without_records_keeps_its_log_start_offset(tmp_path: Path) -> None:
    """The first record that this process writes follows those that the leader has deleted."""
    copy = PartitionCopy(tmp_path / "__consumer_offsets-0")
    copy.restart(100)
    for each in (copy, PartitionCopy(tmp_path / "__consumer_offsets-0")):
        assert (each.start, each.end, each.epoch) == (100, 100, -1)
    with appending(tmp_path, "test") as appender:
        assert appender.append(0, [record_batch(0, [(b"k", b"v")])]) == [100]
    assert PartitionCopy(tmp_path / "__consumer_offsets-0").end == 101


class Leader:
    """Answers Fetch as `ReplicaManager.readFromLog` does: partition 0 always has a batch, partition 1 a large one.

    Of partitions after the first one with records, a response contains no batch that exceeds `partition_max_bytes`.
    """

    def __init__(self, copies: dict[int, PartitionCopy]) -> None:
        self._copies, self._fetches = copies, 0
        self._large = bytes(record_batch(5, [(b"key", bytes(follower.MAX_PARTITION_BYTES + 1))]).data)

    async def send(self, _addresses: object, _api: int, _versions: range, values: Any) -> Any:
        self._fetches += 1
        assert self._fetches < 10, "the large batch is never copied"
        results, is_first = [], True
        for fetch in values["topics"][0]["partitions"]:
            number = fetch["partition"]
            data = batch(self._copies[0].end) if number == 0 else self._large
            if number == 1 and (self._copies[1].end or not is_first):
                data = b""
            is_first = is_first and not data
            results.append(SimpleNamespace(partition_index=number, error_code=0, diverging_epoch=None, records=data))
        answer = SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=results)])
        return SimpleNamespace(entity=lambda: answer)

    def close(self) -> None:
        pass


def test_large_batch_is_copied_although_other_partitions_always_have_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = {number: PartitionCopy(tmp_path / str(number)) for number in range(2)}
    leader = Leader(copies)
    monkeypatch.setattr(follower, "AnyNode", lambda _: leader)
    image = SimpleNamespace(brokers=(), id_of=lambda _: bytes(16), leader=lambda *_: (7 if copies[1].end else 1, 0))
    cluster: Any = SimpleNamespace(image=image, node=7, connection=None, refresh_soon=lambda: None)
    asyncio.run(follower.Follower(cluster, 1, copies).run())
    assert copies[1].end == 1


class Controller:
    """Answers AlterPartition as `ReplicationControlManager` does, for partitions with the given epochs."""

    def __init__(self, epochs: dict[int, int]) -> None:
        self.epochs, self.requests, self.changed = epochs, 0, dict[int, list[int]]()

    async def send(self, _api: int, _version: int, values: Any) -> Any:
        self.requests += 1
        (topic,) = values["topics"]
        answers = [
            SimpleNamespace(partition_index=each["partition_index"], error_code=self._code(each))
            for each in topic["partitions"]
        ]
        return SimpleNamespace(error_code=0, topics=[SimpleNamespace(topic_id=topic["topic_id"], partitions=answers)])

    def _code(self, asked: Any) -> int:
        partition = asked["partition_index"]
        if asked["leader_epoch"] != 1:
            return FENCED_LEADER_EPOCH
        if asked["partition_epoch"] != self.epochs[partition]:
            return NOT_CONTROLLER if asked["partition_epoch"] > self.epochs[partition] else INVALID_UPDATE_VERSION
        self.epochs[partition] += 1
        self.changed[partition] = [each["broker_id"] for each in asked["new_isr_with_epochs"]]
        return NEW_LEADER_ELECTED if partition % 2 else 0


def test_partition_epochs_are_found_by_bisection() -> None:
    epochs = {0: 1, 1: 2, 2: 3, 3: 17, 4: 12_345, 5: 2**31 - 1, 6: 4}
    controller = Controller(epochs)
    changes = [IsrChange(bytes(15) + b"\1", number, 2 if number == 6 else 1, (7, 1)) for number in epochs]
    codes = asyncio.run(alter_isr(cast("Controllers", controller), 7, 5, changes))
    assert {change.partition: code for change, code in codes.items()} == {
        **dict.fromkeys(range(6), 0),
        6: FENCED_LEADER_EPOCH,
    }
    assert controller.changed == {key: [7, 1] for key in range(6)}
    assert controller.requests <= 64


BROKER = {
    "advertised.listeners": "OUT://b1:9092,IN://b1:9093,SECURE://b1:9094",
    "listener.security.protocol.map": "OUT:PLAINTEXT,IN:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "security.inter.broker.protocol": "PLAINTEXT",
}


def test_listeners_are_those_with_the_protocol_of_this_process() -> None:
    assert listeners.matching(BROKER, "PLAINTEXT") == ["OUT", "IN"]
    defaults = {"listeners": "PLAINTEXT://:9092", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL"}
    assert listeners.matching(defaults, "PLAINTEXT") == ["PLAINTEXT"]
    with pytest.raises(Refused, match="over the listener IN with PLAINTEXT, but this process listens with SASL_SSL"):
        listeners.matching(BROKER, "SASL_SSL")


def test_identity_is_kept_and_compared(tmp_path: Path) -> None:
    assert Identity.read(tmp_path) is None
    IDENTITY.write(tmp_path)
    assert Identity.read(tmp_path) == IDENTITY
    IDENTITY.check("cluster", 7, bytes(16))
    wrong: Sequence[tuple[tuple[str | None, int, bytes], str]] = [
        (("other", 7, bytes(16)), "belongs to cluster cluster, not to other"),
        (("cluster", 8, bytes(16)), "start with --node-id 7"),
        (("cluster", 7, bytes(15) + b"\1"), "was deleted, or created again"),
    ]
    for arguments, cause in wrong:
        with pytest.raises(LogMismatch, match=cause):
            IDENTITY.check(*arguments)
    (tmp_path / "offsetlake-broker.json").write_text("{")
    with pytest.raises(LogMismatch, match="is damaged"):
        Identity.read(tmp_path)


def test_log_of_a_cluster_is_served_only_as_its_broker(tmp_path: Path) -> None:
    alone = Settings("lake", str(tmp_path), "127.0.0.1", 0)
    in_cluster = Settings("lake", str(tmp_path), "127.0.0.1", 0, cluster={"bootstrap.servers": "b:9092"}, node_id=7)
    assert with_adopted_log(alone) == alone
    with pytest.raises(BadRequest, match="run `offsetlake adopt --execute`"):
        with_adopted_log(in_cluster)
    IDENTITY.write(tmp_path)
    with pytest.raises(BadRequest, match="run `offsetlake adopt --execute`"):
        with_adopted_log(in_cluster)
    replace(IDENTITY, starts=[0, 5]).write(tmp_path)
    assert with_adopted_log(in_cluster).log_partitions == 2
    with pytest.raises(BadRequest, match="specify --cluster and --node-id 7"):
        with_adopted_log(alone)
    with pytest.raises(LogBusy, match="only `offsetlake serve --cluster` may write to it"), appending(tmp_path, "job"):
        pass


def test_batches_have_the_leader_epoch_of_the_partition(tmp_path: Path) -> None:
    appender = Appender(tmp_path, lambda _: 0, lambda partition: 40 + partition)
    for partition in (1, 2):
        appender.append(partition, [record_batch(0, [(b"k", b"v")])])
    appender.close()
    files = sorted(tmp_path.glob("*/*.log"))
    assert [struct.unpack_from(">i", file.read_bytes(), 12)[0] for file in files] == [41, 42]


def test_return_is_refused_if_segments_were_deleted(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="was not adopted"):
        complete_identity(tmp_path)
    complete = replace(IDENTITY, starts=[0, 5])
    complete.write(tmp_path)
    for partition, base in ((0, 0), (1, 5)):
        (tmp_path / f"__consumer_offsets-{partition}").mkdir()
        (tmp_path / f"__consumer_offsets-{partition}" / f"{base:020}.log").touch()
    assert complete_identity(tmp_path) == complete
    with pytest.raises(Refused, match="stopped before its end"):
        check_returned(tmp_path)
    segment = tmp_path / "__consumer_offsets-1" / f"{5:020}.log"
    segment.rename(segment.with_name(f"{9:020}.log"))
    with pytest.raises(Refused, match="begins at offset 9, not at 5: segments were deleted"):
        complete_identity(tmp_path)


def test_topic_of_the_log_that_was_created_again_ends_the_process() -> None:
    def image(topic_id: bytes, partitions: int = 1) -> SimpleNamespace:
        return SimpleNamespace(partitions=lambda _: partitions, id_of=lambda _: topic_id, leader=lambda *_: (1, 0))

    cluster: Any = SimpleNamespace(image=image(b"old"), node=1)
    leadership = Leadership(cluster)
    leadership.check()
    cluster.image = image(b"", 0)
    leadership.check()
    cluster.image = image(b"new")
    with pytest.raises(LogMismatch, match="deleted and created again"):
        leadership.check()


def test_unexpected_error_of_the_metadata_ends_a_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(SimpleNamespace):
        async def run(self) -> None:
            raise ZeroDivisionError

        async def loaded(self) -> None:
            pass

    async def move() -> None:
        async with adoption.metadata(Settings("lake", str(tmp_path), "127.0.0.1", 0, node_id=1)):
            await asyncio.Event().wait()

    monkeypatch.setattr(adoption, "cluster_of", lambda _: Broken())
    with pytest.raises(ZeroDivisionError):
        asyncio.run(asyncio.wait_for(move(), SECONDS))


def test_registration_finds_controllers_over_brokers_that_have_moved() -> None:
    """The addresses are those in the newest metadata, not those at the start of this process."""
    closed, opened = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    known = [closed.getsockname()]
    closed.close()
    connection = KafkaConnection(bootstrap="127.0.0.1:1", request_timeout_ms=100)
    registration = Registration(connection, lambda: known, IDENTITY, ())
    registration.start()
    try:
        known[:] = [opened.getsockname()]
        opened.settimeout(SECONDS)
        opened.accept()[0].close()
    finally:
        registration.stop()
        opened.close()


def test_forwarded_requests_may_be_larger_than_the_smallest_limit() -> None:
    """An API without a limit of its own would be limited to the smallest limit of all."""
    for api in FORWARDED | RELAYED:
        check_frame_size(8 << 20, api.to_bytes(2, "big"))
        with pytest.raises(Malformed, match=f"a request of API {api} has"):
            check_frame_size((8 << 20) + 1, api.to_bytes(2, "big"))


def test_end_of_the_metadata_is_asked_of_the_active_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other controllers refuse DescribeQuorum for its partition, not as a whole; the last answer is not kept.

    Brokers can wait 30 seconds for a controller that hangs; the controllers that are known are then asked again.
    """

    def described(code: int) -> Any:
        listeners = [[SimpleNamespace(host=f"c{node}", port=9093)] for node in (1, 2, 3)]
        nodes = [SimpleNamespace(node_id=node, listeners=each) for node, each in enumerate(listeners, 1)]
        row = SimpleNamespace(error_code=code, leader_id=1, high_watermark=5)
        quorum = SimpleNamespace(error_code=0, nodes=nodes, topics=[SimpleNamespace(partitions=[row])])
        return SimpleNamespace(api=DESCRIBE_QUORUM, entity=lambda: quorum)

    async def send_to_broker(*_: object) -> Any:
        if active[-1] == "none":
            raise LogUnavailable("no response in time")
        return described(0)

    async def open_broker(_settings: object, address: tuple[str, int], *_: object) -> Any:
        return SimpleNamespace(host=address[0], connected=lambda: True, close=lambda: None)

    async def send(connection: Any, *_: object) -> Any:
        return described(0 if connection.host == active[-1] else NOT_LEADER_OR_FOLLOWER)

    monkeypatch.setattr(any_node, "open_broker", open_broker)
    monkeypatch.setattr(any_node.requests, "send", send)
    controllers = Controllers(KafkaConnection(bootstrap="127.0.0.1:1"), send_to_broker)
    active: list[str] = []
    for host in ("c1", "c3", "c2"):
        active.append(host)
        assert asyncio.run(controllers.metadata_end()) == 4
    active.append("none")
    with pytest.raises(LogUnavailable, match="No controller of the cluster at c1:9093, c2:9093, c3:9093 answers"):
        asyncio.run(controllers.metadata_end())
    monkeypatch.setattr(controllers, "_send_to_broker", None)
    active.append("c1")
    assert asyncio.run(controllers.metadata_end()) == 4


def test_names_are_asked_again_if_the_controller_does_not_answer_in_time() -> None:
    """A busy controller fails CreateTopics for each topic; nothing is known about the names then."""

    async def send(_api: int, _version: int, values: Any) -> Any:
        return SimpleNamespace(
            topics=[SimpleNamespace(name=topic["name"], error_code=REQUEST_TIMED_OUT) for topic in values["topics"]]
        )

    with pytest.raises(LogUnavailable, match="CreateTopics failed with the error code 7"):
        asyncio.run(unused_names(cast("Controllers", SimpleNamespace(send=send)), [b"t"]))


def test_quorum_without_a_leader_is_asked_again() -> None:
    async def send_to_broker(*_: object) -> Any:
        row = SimpleNamespace(error_code=NOT_CONTROLLER)
        quorum = SimpleNamespace(error_code=0, nodes=[object()], topics=[SimpleNamespace(partitions=[row])])
        return SimpleNamespace(entity=lambda: quorum)

    controllers = Controllers(KafkaConnection(bootstrap="127.0.0.1:1"), send_to_broker)
    with pytest.raises(LogUnavailable, match="error code 41"):
        asyncio.run(controllers.metadata_end())
