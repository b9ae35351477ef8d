"""`serve` with `[serve.zookeeper]`: what real clients commit to the log is also in a real ZooKeeper."""

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from support.serve.http_client import ask
from support.serve.serving import Serving
from support.zookeeper.committing import (
    commit,
    consumer,
    content,
    delete_group,
    fetched,
    wait_for,
    znodes,
)
from support.zookeeper.ensemble import Ensemble, open_client, put_offsets, sasl_ensemble

pytestmark = pytest.mark.slow


@pytest.fixture
def empty(client: KazooClient) -> KazooClient:
    """A client of a ZooKeeper without groups."""
    client.create("/consumers")
    return client


def serving(folder: Path, ensemble: Ensemble, chroot: str = "", **zookeeper: str) -> Serving:
    settings = {"address": ensemble.url(chroot), **zookeeper}
    return Serving(folder / "lake", folder / "log", zookeeper=settings, http=["127.0.0.1", 0])


def metrics(served: Serving) -> dict[str, float]:
    """Return the metrics about ZooKeeper by name and labels."""
    lines = ask(served.http, "GET", "/metrics").body.splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if line.startswith("offsetlake_zookeeper_"))
    return {name.removeprefix("offsetlake_zookeeper_"): float(value) for name, value in found.items()}


def different(served: Serving, reason: str) -> float:
    return metrics(served)[f'different_offsets{{reason="{reason}"}}']


def test_commits_deletions_and_transactions_are_also_in_zookeeper(
    tmp_path: Path, ensemble: Ensemble, chroot: str, empty: KazooClient
) -> None:
    put_offsets(empty, "foreign", {("orders", "0"): b"7"})
    empty.create("/consumers/billing/owners/orders", makepath=True)
    empty.create("/consumers/billing/ids", makepath=True)
    with serving(tmp_path, ensemble, chroot, groups="billing,ex?ctly") as served:
        offsets = {("orders", number): 10 + number for number in range(3)} | {("payments", 0): 0}
        commit(served.bootstrap, "billing", offsets)
        commit(served.bootstrap, "other", offsets)
        wait_for(lambda: znodes(empty, "billing"), content(offsets))
        commit(served.bootstrap, "billing", {("orders", 1): 5})  # a reset
        wait_for(lambda: znodes(empty, "billing"), content(offsets | {("orders", 1): 5}))

        member = consumer(served.bootstrap, "exactly")
        producer = Producer({"bootstrap.servers": served.bootstrap, "transactional.id": "t"})
        producer.init_transactions(60)
        for number, end in ((1, producer.commit_transaction), (2, producer.abort_transaction)):
            producer.begin_transaction()
            positions = [TopicPartition("orders", 0, number)]
            producer.send_offsets_to_transaction(positions, member.consumer_group_metadata())
            end(60)
        member.close()
        wait_for(lambda: znodes(empty, "exactly"), {("orders", 0): b"1"})

        delete_group(served.bootstrap, "billing")
        wait_for(lambda: sorted(empty.get_children("/consumers")), ["exactly", "foreign"])
        wait_for(lambda: metrics(served)["seconds_behind"], 0)
        found = metrics(served)
        assert (found["available"], different(served, "waiting"), found["written_offsets_total"]) == (1, 0, 10)
    assert znodes(empty, "foreign") == {("orders", 0): b"7"}


@pytest.mark.long
def test_zookeeper_that_does_not_respond_delays_no_commit_and_is_brought_up_to_date(tmp_path: Path) -> None:
    with Ensemble(tmp_path / "zookeeper") as ensemble, serving(tmp_path, ensemble) as served:
        client = open_client(ensemble)
        client.create("/consumers")
        commit(served.bootstrap, "first", {("orders", 0): 1})
        wait_for(lambda: znodes(client, "first"), {("orders", 0): b"1"})
        client.stop()
        client.close()
        ensemble.pause()
        for number in range(100):
            commit(served.bootstrap, f"g{number % 10}", {("orders", 0): number, ("orders", 1): number})
        assert 20 <= different(served, "waiting") <= 40  # each key once, whatever the number of commits, or twice
        assert metrics(served)["seconds_behind"] > 0
        served.wait_for_line("ZooKeeper cannot be used")
        assert metrics(served)["available"] == 0
        ensemble.resume()
        client = open_client(ensemble)
        for number in range(90, 100):
            expected = content({("orders", 0): number, ("orders", 1): number})
            wait_for(lambda group=number % 10: znodes(client, f"g{group}"), expected)
        client.stop()
        client.close()


@pytest.mark.long
def test_restart_finds_what_a_killed_process_did_not_write_or_delete(tmp_path: Path) -> None:
    with Ensemble(tmp_path / "zookeeper") as ensemble:
        client = open_client(ensemble)
        client.create("/consumers")
        with serving(tmp_path, ensemble) as served:
            for group in ("kept", "changed", "deleted", "foreign"):
                commit(served.bootstrap, group, {("orders", 0): 1, ("orders", 1): 1})
            for group in ("kept", "changed", "deleted", "foreign"):
                wait_for(lambda group=group: znodes(client, group), content({("orders", 0): 1, ("orders", 1): 1}))
        client.stop()
        client.close()
        ensemble.pause()
        with serving(tmp_path, ensemble) as served:
            commit(served.bootstrap, "changed", {("orders", 0): 2})
            commit(served.bootstrap, "created", {("orders", 0): 3})
            delete_group(served.bootstrap, "deleted")
            served.kill()
        ensemble.resume()
        client = open_client(ensemble)
        client.set("/consumers/foreign/offsets/orders/0", b"41")
        client.delete("/consumers/kept/offsets/orders/1")
        put_offsets(client, "never-in-the-log", {("orders", "0"): b"9"})
        with serving(tmp_path, ensemble) as served:
            wait_for(lambda: znodes(client, "changed"), content({("orders", 0): 2, ("orders", 1): 1}))
            wait_for(lambda: znodes(client, "created"), {("orders", 0): b"3"})
            expected = ["changed", "created", "foreign", "kept", "never-in-the-log"]
            wait_for(lambda: sorted(client.get_children("/consumers")), expected)
            wait_for(lambda: znodes(client, "kept"), content({("orders", 0): 1, ("orders", 1): 1}))
            served.wait_for_line("1 of 7 offsets differ in ZooKeeper, where others have changed them: of the groups")
            assert (different(served, "changed_by_others"), metrics(served)["largest_difference"]) == (1, 40)
            assert znodes(client, "foreign")["orders", 0] == b"41"  # only a commit replaces it
            commit(served.bootstrap, "foreign", {("orders", 0): 2})
            wait_for(lambda: znodes(client, "foreign"), content({("orders", 0): 2, ("orders", 1): 1}))
            wait_for(lambda: different(served, "changed_by_others"), 0)
        assert znodes(client, "never-in-the-log") == {("orders", 0): b"9"}
        client.stop()
        client.close()


@pytest.mark.long
def test_offsets_of_active_consumers_are_not_overwritten(
    tmp_path: Path, ensemble: Ensemble, chroot: str, empty: KazooClient
) -> None:
    put_offsets(empty, "used", {("orders", "0"): b"5"})
    empty.create("/consumers/used/ids/app_host-1", ephemeral=True, makepath=True)
    with serving(tmp_path, ensemble, chroot) as served:
        commit(served.bootstrap, "used", {("orders", 0): 1})
        served.wait_for_line("it has active consumers in ZooKeeper: app_host-1")
        assert (different(served, "refused"), znodes(empty, "used")) == (1, {("orders", 0): b"5"})
        empty.delete("/consumers/used/ids/app_host-1")
        wait_for(lambda: znodes(empty, "used"), {("orders", 0): b"1"})


@pytest.mark.long
def test_acls_are_obeyed(tmp_path: Path, ensemble: Ensemble, chroot: str, empty: KazooClient) -> None:
    acl = [make_digest_acl("kafka", "se=cret", all=True), make_acl("world", "anyone", read=True)]
    put_offsets(empty, "g", {("orders", "0"): b"5"})
    empty.set_acls("/consumers/g/offsets/orders/0", acl)
    with serving(tmp_path, ensemble, chroot) as served:
        commit(served.bootstrap, "g", {("orders", 0): 1})
        served.wait_for_line("an ACL forbids to write a znode of the group")
        assert znodes(empty, "g") == {("orders", 0): b"5"}
    (tmp_path / "own.properties").write_text("digest.user=kafka\ndigest.password=se=cret\n")
    with serving(tmp_path, ensemble, chroot, config=str(tmp_path / "own.properties")) as served:
        wait_for(lambda: znodes(empty, "g"), {("orders", 0): b"1"})
    assert "se=cret" not in "\n".join(served.said)


@pytest.mark.long
def test_sasl(tmp_path: Path) -> None:
    with sasl_ensemble(tmp_path / "zookeeper", "kafka", "se-cret") as ensemble:
        client = open_client(ensemble)
        client.create("/consumers", acl=[make_acl("sasl", "kafka", all=True), make_acl("world", "anyone", read=True)])
        config = tmp_path / "own.properties"
        settings = "sasl.mechanism=DIGEST-MD5\nsasl.username=kafka\nsasl.password="
        config.write_text(f"{settings}wrong-secret\n")
        with serving(tmp_path, ensemble, config=str(config)) as served:
            commit(served.bootstrap, "g", {("orders", 0): 1})
            served.wait_for_line("ZooKeeper cannot be used")
            assert znodes(client, "g") == {}
        assert "wrong-secret" not in "\n".join(served.said)
        config.write_text(f"{settings}se-cret\n")
        with serving(tmp_path, ensemble, config=str(config)) as served:
            wait_for(lambda: znodes(client, "g"), {("orders", 0): b"1"})
        client.stop()
        client.close()


@pytest.mark.long
def test_last_commits_before_a_stop_are_written(
    tmp_path: Path, ensemble: Ensemble, chroot: str, empty: KazooClient
) -> None:
    with serving(tmp_path, ensemble, chroot) as served:
        for number in range(20):
            commit(served.bootstrap, "g", {("orders", 0): number})
    assert znodes(empty, "g") == {("orders", 0): b"19"}
    assert served.process.returncode == 0


@pytest.mark.long
def test_killed_member_of_an_ensemble_loses_nothing(tmp_path: Path) -> None:
    with Ensemble(tmp_path / "ensemble", servers=3) as ensemble, serving(tmp_path, ensemble) as served:
        client = open_client(ensemble)
        client.create("/consumers")
        number, deadline = 0, time.monotonic() + 4
        leader: Any = ensemble.leader()
        while time.monotonic() < deadline:
            commit(served.bootstrap, f"g{number % 20}", {("orders", each): number for each in range(5)})
            number += 1
            if number == 30:
                ensemble.kill(leader)
        for group in range(20):
            name = f"g{group}"
            expected = content(fetched(served.bootstrap, name))
            assert len(expected) == 5
            wait_for(lambda name=name: znodes(client, name), expected)
        client.stop()
        client.close()
