"""`serve` with `store = "zookeeper"`: commits are acknowledged when they are in ZooKeeper, which others change, too."""

import random
import struct
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as PythonTopicPartition
from kazoo.client import KazooClient

from support.serve.serving import Serving
from support.serve.wire_client import METADATA, OFFSET_COMMIT, OFFSET_FETCH, WireClient, frame, request
from support.zookeeper.committing import (
    Offsets,
    commit,
    consumer,
    content,
    delete_group,
    fetched,
    wait_for,
    znodes,
)
from support.zookeeper.ensemble import Ensemble, open_client, put_offsets

pytestmark = pytest.mark.slow

NOT_AVAILABLE, NON_EMPTY_GROUP = 15, 68  # COORDINATOR_NOT_AVAILABLE is the first
DELETE_GROUPS, OFFSET_DELETE = 42, 47


def serving(folder: Path, ensemble: Ensemble, chroot: str = "", **settings: object) -> Serving:
    zookeeper = {"address": ensemble.url(chroot)}
    return Serving(folder / "lake", folder / "log", zookeeper=zookeeper, store="zookeeper", **settings)


def loaded(served: Serving) -> Serving:
    served.wait_for_line("ZooKeeper is the store of committed offsets")
    return served


def commit_values(group: str, offsets: Offsets) -> dict[str, object]:
    topics: dict[str, list[dict[str, object]]] = {}
    for (topic, partition), offset in offsets.items():
        row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
        topics.setdefault(topic, []).append(row)
    listed = [{"name": name, "partitions": rows} for name, rows in topics.items()]
    return {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": listed}


def test_offsets_are_those_in_zookeeper_whoever_wrote_them(
    tmp_path: Path, ensemble: Ensemble, chroot: str, client: KazooClient
) -> None:
    put_offsets(client, "old", {("orders", "0"): b"7", ("orders", "1"): b"junk"})
    with serving(tmp_path, ensemble, chroot) as served:
        loaded(served)
        assert fetched(served.bootstrap, "old") == {("orders", 0): 7}
        offsets = {("orders", number): 10 + number for number in range(300)} | {("payments", 0): 0}
        commit(served.bootstrap, "new", offsets)
        assert znodes(client, "new") == content(offsets)  # when it is acknowledged, it is there
        assert fetched(served.bootstrap, "new") == offsets

        client.set("/consumers/new/offsets/orders/1", b"3")
        client.delete("/consumers/new/offsets/orders/2")
        put_offsets(client, "new", {("created", "5"): b"50"})
        expected = {**offsets, ("orders", 1): 3, ("created", 5): 50}
        del expected["orders", 2]
        assert fetched(served.bootstrap, "new") == expected
        python = KafkaConsumer(bootstrap_servers=served.bootstrap, group_id="new", enable_auto_commit=False)
        assert python.committed(PythonTopicPartition("orders", 1)) == 3
        python.close()

        client.set("/consumers/new/offsets/orders/1", b"1")
        commit(served.bootstrap, "new", {("orders", 1): 4})  # the last writer wins
        assert client.get("/consumers/new/offsets/orders/1")[0] == b"4"
        put_offsets(client, "unknown", {("orders", "0"): b"1"})
        assert fetched(served.bootstrap, "unknown") == {("orders", 0): 1}
        delete_group(served.bootstrap, "new")
        assert fetched(served.bootstrap, "new") == {}
        wait_for(lambda: client.exists("/consumers/new"), None)
    put_offsets(client, "old", {("orders", "0"): b"8"})
    client.delete("/consumers/unknown/offsets/orders/0")
    with serving(tmp_path, ensemble, chroot) as served:
        loaded(served)
        assert fetched(served.bootstrap, "old") == {("orders", 0): 8}
        assert znodes(client, "unknown") == {("orders", 0): b"1"}  # created again: it was deleted while nothing served


@pytest.mark.long
def test_member_of_a_group_commits_with_its_generation(
    tmp_path: Path, ensemble: Ensemble, chroot: str, client: KazooClient
) -> None:
    client.create("/consumers")
    with serving(tmp_path, ensemble, chroot, topics={"orders": 2}) as served:
        loaded(served)
        for protocol in ("classic", "consumer"):
            member = consumer(served.bootstrap, protocol, group_protocol=protocol)
            assigned: list[TopicPartition] = []
            member.subscribe(["orders"], on_assign=lambda _, partitions, found=assigned: found.extend(partitions))
            wait_for(lambda member=member, found=assigned: (member.poll(0.1) and None) or bool(found), True)
            each = assigned[0]
            member.commit(offsets=[TopicPartition(each.topic, each.partition, 41)], asynchronous=False)
            assert znodes(client, protocol) == {("orders", each.partition): b"41"}
            client.set(f"/consumers/{protocol}/offsets/orders/{each.partition}", b"40")
            assert member.committed([each])[0].offset == 40
            member.close()


@pytest.mark.long
def test_unavailable_zookeeper_refuses_commits_and_blocks_nothing_else(tmp_path: Path) -> None:
    with Ensemble(tmp_path / "zookeeper") as ensemble, serving(tmp_path, ensemble) as served:
        client = open_client(ensemble)
        client.create("/consumers")
        client.stop()
        client.close()
        loaded(served)
        commit(served.bootstrap, "g", {("orders", 0): 1})
        ensemble.pause()
        with WireClient(served.bootstrap) as waiting, WireClient(served.bootstrap) as other:
            entity = request(OFFSET_COMMIT, 7, commit_values("g", {("orders", 0): 2}))
            waiting.socket.sendall(frame(OFFSET_COMMIT, 7, 1, entity))
            assert other.ask(METADATA, 7, {"topics": []})["brokers"]  # answered while the commit waits
            assert struct.unpack(">h", waiting.receive()[-2:]) == (NOT_AVAILABLE,)
            refused = other.ask(OFFSET_COMMIT, 7, commit_values("g", {("orders", 0): 3}))
            assert refused["topics"][0]["partitions"][0]["error_code"] == NOT_AVAILABLE
            assert other.ask(OFFSET_FETCH, 5, {"group_id": "g", "topics": None})["error_code"] == NOT_AVAILABLE
            ensemble.resume()
            answer = lambda: other.ask(OFFSET_FETCH, 5, {"group_id": "g", "topics": None})["error_code"]  # noqa: E731
            wait_for(answer, 0)
        assert fetched(served.bootstrap, "g") == {("orders", 0): 2}  # it had arrived, and may take effect
        commit(served.bootstrap, "g", {("orders", 0): 4})
        client = open_client(ensemble)
        assert znodes(client, "g") == {("orders", 0): b"4"}
        client.stop()
        client.close()


@pytest.mark.long
def test_commits_continue_when_the_leader_of_an_ensemble_is_killed(tmp_path: Path) -> None:
    with Ensemble(tmp_path / "zookeeper", servers=3) as ensemble:
        client = open_client(ensemble)
        client.create("/consumers")
        with serving(tmp_path, ensemble) as served, WireClient(loaded(served).bootstrap) as wire:
            numbers = [0]

            def is_acknowledged() -> bool:
                numbers.append(numbers[-1] + 1)
                values = commit_values("g", {("orders", each): numbers[-1] for each in range(20)})
                rows = wire.ask(OFFSET_COMMIT, 7, values)["topics"][0]["partitions"]
                assert {row["error_code"] for row in rows} in ({0}, {NOT_AVAILABLE})
                return rows[0]["error_code"] == 0

            wait_for(is_acknowledged, True)
            leader = ensemble.leader()
            ensemble.kill(leader)
            for _ in range(20):
                wait_for(is_acknowledged, True)
                client.sync("/consumers")
                assert znodes(client, "g") == content({("orders", each): numbers[-1] for each in range(20)})
            ensemble.start(leader)
            wait_for(is_acknowledged, True)
            assert fetched(served.bootstrap, "g") == {("orders", each): numbers[-1] for each in range(20)}
        client.stop()
        client.close()


def test_group_with_active_consumers_in_zookeeper_is_not_deleted(
    tmp_path: Path, ensemble: Ensemble, chroot: str, client: KazooClient
) -> None:
    put_offsets(client, "used", {("orders", "0"): b"5"})
    client.create("/consumers/used/ids/app_host-1", ephemeral=True, makepath=True)
    with serving(tmp_path, ensemble, chroot) as served, WireClient(loaded(served).bootstrap) as wire:
        assert fetched(served.bootstrap, "used") == {("orders", 0): 5}
        result = wire.ask(DELETE_GROUPS, 1, {"groups_names": ["used"]})["results"][0]
        assert result["error_code"] == NON_EMPTY_GROUP
        topics = [{"name": "orders", "partitions": [{"partition_index": 0}]}]
        assert wire.ask(OFFSET_DELETE, 0, {"group_id": "used", "topics": topics})["error_code"] == 0
        served.wait_for_line("it has active consumers in ZooKeeper: app_host-1")
        assert fetched(served.bootstrap, "used") == {("orders", 0): 5}  # ZooKeeper decides
        client.delete("/consumers/used/ids/app_host-1")
        assert wire.ask(DELETE_GROUPS, 1, {"groups_names": ["used"]})["results"][0]["error_code"] == 0
        assert fetched(served.bootstrap, "used") == {}
        wait_for(lambda: client.exists("/consumers/used"), None)


def test_names_that_no_znode_can_have_harm_nobody(
    tmp_path: Path, ensemble: Ensemble, chroot: str, client: KazooClient
) -> None:
    client.create("/consumers")
    with serving(tmp_path, ensemble, chroot) as served, WireClient(loaded(served).bootstrap) as wire:
        for group in ("a/b", "..", "\0", "\u0085", "x" * 10_000):
            for topic in ("orders", "a/b"):
                rows = wire.ask(OFFSET_COMMIT, 7, commit_values(group, {(topic, 0): 1}))["topics"][0]["partitions"]
                assert rows[0]["error_code"] in {0, NOT_AVAILABLE}
            assert wire.ask(OFFSET_FETCH, 5, {"group_id": group, "topics": None})["error_code"] == 0
        commit(served.bootstrap, "g", {("orders", 0): 1})
        assert znodes(client, "g") == {("orders", 0): b"1"}


def commit_numbers(bootstrap: str, group: str, numbers: list[int]) -> None:
    """Commit the next numbers to all partitions until the server is killed; the last one is acknowledged."""
    try:
        with WireClient(bootstrap) as client:
            while True:
                number = numbers[-1] + 1
                values = commit_values(group, {("orders", each): number for each in range(20)})
                rows = client.ask(OFFSET_COMMIT, 7, values)["topics"][0]["partitions"]
                assert not any(row["error_code"] for row in rows)
                numbers.append(number)
    except (EOFError, ConnectionError):
        return


@pytest.mark.long
def test_acknowledged_commits_are_in_zookeeper_after_a_kill_and_none_in_part(
    tmp_path: Path, ensemble: Ensemble, chroot: str, client: KazooClient
) -> None:
    client.create("/consumers")
    chosen, known = random.Random(3), {f"g{each}": [0] for each in range(4)}
    for _ in range(3):
        with serving(tmp_path, ensemble, chroot) as served:
            loaded(served)
            for group, numbers in known.items():
                found = fetched(served.bootstrap, group).values()
                assert len({*found}) <= 1
                numbers.append(max(numbers[-1], *found, 0))
            threads = [
                threading.Thread(target=commit_numbers, args=(served.bootstrap, group, numbers))
                for group, numbers in known.items()
            ]
            for each in threads:
                each.start()
            time.sleep(chosen.uniform(0.3, 1.0))  # the kill comes at any time of the load
            served.kill()
            for each in threads:
                each.join()
            for group, numbers in known.items():
                contents = {*znodes(client, group).values()}
                assert len(contents) == 1, f"{group}: a commit was applied in part"
                assert numbers[-1] <= int(contents.pop()) <= numbers[-1] + 1
