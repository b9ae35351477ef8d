"""`offsetlake import` takes over what a real ZooKeeper contains, and reports what it cannot take over."""

import json
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from offsetlake.zookeeper import client as client_module
from support.broker import workload
from support.broker.broker import Broker
from support.command_line import Run
from support.zookeeper.ensemble import Ensemble, open_client, put_offsets, sasl_ensemble

pytestmark = pytest.mark.slow

Offsets = dict[tuple[str, str, int], int]
COLUMNS = Path(__file__).parents[1] / "fixtures" / "columns.json"
OPTIONS = ("--lake", "lake", "--log", "log")


def rows(output: str) -> dict[tuple[str, str, int], dict[str, Any]]:
    answer = [json.loads(line) for line in output.splitlines()]
    return {(row["group_id"], row["topic"], row["partition"]): row for row in answer}


def committed(run: Run, *groups: str) -> Offsets:
    """Return the offsets of these groups, or of all."""
    code, output, errors = run("offsets", "--lake", "lake", "--format", "json")
    assert code == 0, errors
    return {key: row["committed_offset"] for key, row in rows(output).items() if not groups or key[0] in groups}


def undo_of(errors: str) -> list[str]:
    [line] = [line for line in errors.splitlines() if "To undo them:" in line]
    return shlex.split(line.partition("To undo them: offsetlake ")[2])


@pytest.mark.usefixtures("lake")
def test_offsets_are_planned_taken_over_and_restored(
    run: Run, ensemble: Ensemble, chroot: str, client: KazooClient
) -> None:
    put_offsets(client, "billing", {("orders", "0"): b"7", ("orders", "11"): b"0"})
    put_offsets(client, "a b\u2044c", {("orders", "1"): str(2**63 - 1).encode()})
    before = committed(run)
    command = ("import", ensemble.url(chroot), *OPTIONS, "--format", "json")
    code, output, errors = run(*command)
    assert code == 0, errors
    assert {row["outcome"] for row in rows(output).values()} == {"planned"}
    assert {*json.loads(output.splitlines()[0])} == {*json.loads(COLUMNS.read_text())["questions"]["reset"]}
    assert committed(run) == before
    code, output, errors = run(*command, "--execute")
    assert code == 0, errors
    taken = {
        ("billing", "orders", 0): 7,
        ("billing", "orders", 11): 0,
        ("a b\u2044c", "orders", 1): 2**63 - 1,
    }
    assert {key: row["committed_offset"] for key, row in rows(output).items()} == taken
    assert committed(run) == before | taken
    undo = undo_of(errors)
    code, output, errors = run(*command, "--execute")
    assert (code, {row["outcome"] for row in rows(output).values()}) == (0, {"unchanged"})
    code, output, errors = run(*undo, "--execute")
    assert code == 0, errors
    assert committed(run) == before


@pytest.mark.usefixtures("lake")
def test_pattern_selects_groups_and_an_exact_name_has_precedence(
    run: Run, ensemble: Ensemble, chroot: str, client: KazooClient
) -> None:
    for name in ("a1", "a2", "b", "a*"):
        put_offsets(client, name, {("orders", "0"): b"1"})
    for pattern, expected in (("a?", {"a1", "a2", "a*"}), ("a*", {"a*"}), ("b", {"b"})):
        code, output, errors = run("import", ensemble.url(chroot), pattern, *OPTIONS, "--format", "json")
        assert code == 0, errors
        assert {group for group, _, _ in rows(output)} == expected


@pytest.mark.usefixtures("lake")
def test_invalid_znodes_are_reported_and_lose_nothing_else(
    run: Run, ensemble: Ensemble, chroot: str, client: KazooClient
) -> None:
    invalid = [b"", b"-1", b"12a", b"1.0", b" 1", str(2**63).encode(), "\u0661".encode(), b"\xff\x1b[2J"]
    put_offsets(client, "g", {("bad", str(number)): value for number, value in enumerate(invalid)})
    put_offsets(client, "g", {("good", "0"): b"5", ("of 7", "0"): b"6"})
    for name in ("0-1", "x", "01", "4294967296", "\u0661"):
        put_offsets(client, "g", {("good", name): b"5"})
    client.create("/consumers/no-offsets", makepath=True)
    client.create("/consumers/no-topics/offsets", makepath=True)
    code, output, errors = run("import", ensemble.url(chroot), *OPTIONS, "--format", "json", "--execute")
    found = rows(output)
    assert code == 8
    assert {key for key, row in found.items() if row["outcome"] == "refused"} == {
        *(("g", "bad", number) for number in range(len(invalid))),
        ("g", "of 7", 0),
    }
    for number in range(len(invalid)):
        assert f"/consumers/g/offsets/bad/{number} " in found["g", "bad", number]["reason"]
    assert "not a valid name of a topic" in found["g", "of 7", 0]["reason"]
    for name in ("0-1", "x", "01", "4294967296", "\u0661"):
        assert f"Ignored: /consumers/g/offsets/good/{name}: {name!r} is not a partition number" in errors
    assert "\x1b" not in output + errors
    assert committed(run, "g") == {("g", "good", 0): 5}


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize("path", ["ids/app_host-1", "owners/orders/0"])
def test_groups_with_active_consumers_are_refused_by_name(
    run: Run, ensemble: Ensemble, chroot: str, client: KazooClient, path: str
) -> None:
    put_offsets(client, "used", {("orders", "0"): b"5"})
    put_offsets(client, "unused", {("orders", "0"): b"6"})
    client.create("/consumers/unused/owners/orders", makepath=True)
    client.create(f"/consumers/used/{path}", b"app_host-1", ephemeral=True, makepath=True)
    command = ("import", ensemble.url(chroot), *OPTIONS, "--format", "json", "--execute")
    code, output, errors = run(*command)
    assert code == 8, errors
    assert "it has active consumers in ZooKeeper: app_host-1" in rows(output)["used", "orders", 0]["reason"]
    assert committed(run, "used", "unused") == {("unused", "orders", 0): 6}
    client.delete(f"/consumers/used/{path}")
    assert run(*command)[0] == 0
    assert committed(run, "used", "unused") == {("unused", "orders", 0): 6, ("used", "orders", 0): 5}


@pytest.mark.usefixtures("lake")
def test_wrong_places_are_errors(run: Run, ensemble: Ensemble, chroot: str, client: KazooClient) -> None:
    code, _, errors = run("import", ensemble.url(f"{chroot}/none"), *OPTIONS)
    assert (code, f"There is no znode {chroot}/none" in errors) == (2, True), errors
    code, _, errors = run("import", ensemble.url(chroot), *OPTIONS)
    assert (code, f"ZooKeeper has no znode {chroot}/consumers" in errors) == (2, True)
    put_offsets(client, "g", {("orders", "0"): b"1"})
    code, _, errors = run("import", ensemble.url(chroot), "h", *OPTIONS)
    assert (code, "There is no group 'h'" in errors) == (2, True)


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    "url",
    ["zookeeper://host", "zookeeper://host:0x1", "zookeeper://h:1/../x", "zookeeper://h:1//x"],
)
def test_invalid_addresses_are_errors(run: Run, url: str) -> None:
    code, _, errors = run("import", url, *OPTIONS)
    assert (code, "Invalid address of ZooKeeper" in errors) == (2, True)


@pytest.mark.usefixtures("lake")
def test_credentials_are_read_from_a_file_and_are_in_no_message(
    run: Run, ensemble: Ensemble, chroot: str, client: KazooClient, tmp_path: Path
) -> None:
    assert "secret" not in "".join(map(str, run("import", "zookeeper://user:secret@host:2181", *OPTIONS)))
    put_offsets(client, "open", {("orders", "0"): b"1"})
    put_offsets(client, "closed", {("orders", "0"): b"2"})
    owner = [make_digest_acl("kafka", "se=cret", all=True)]
    client.set_acls("/consumers/closed/offsets/orders", owner)
    command = ("import", ensemble.url(chroot), *OPTIONS, "--format", "json", "--execute")
    code, output, errors = run(*command)
    assert (code, set(rows(output))) == (0, {("open", "orders", 0)})
    assert "Ignored: /consumers/closed/offsets/orders: cannot be read (NoAuthError)" in errors
    (tmp_path / "zookeeper.properties").write_text("digest.user=kafka\ndigest.password=se=cret\n")
    command = (*command, "--zookeeper-config", "zookeeper.properties")
    code, output, errors = run(*command)
    assert (code, "se=cret" in output + errors) == (0, False)
    assert committed(run, "closed") == {("closed", "orders", 0): 2}
    assert b"se=cret" not in b"".join(path.read_bytes() for path in tmp_path.rglob("lake/**/*") if path.is_file())
    (tmp_path / "zookeeper.properties").write_text("digest.user=kafka\nse=cret\n")
    code, output, errors = run(*command)
    assert (code, "se=cret" in output + errors) == (2, False)


@pytest.mark.long
@pytest.mark.usefixtures("lake")
def test_sasl(run: Run, tmp_path: Path) -> None:
    with sasl_ensemble(tmp_path / "sasl", "kafka", "se-cret") as ensemble:
        client = open_client(ensemble)
        put_offsets(client, "g", {("orders", "0"): b"4"})
        client.set_acls("/consumers/g/offsets/orders/0", [make_acl("sasl", "kafka", read=True)])
        client.stop()
        client.close()
        command = ("import", ensemble.url(), *OPTIONS, "--format", "json", "--execute")
        code, output, errors = run(*command)
        assert (code, "cannot be read (NoAuthError)" in rows(output)["g", "orders", 0]["reason"]) == (8, True), errors
        config = tmp_path / "zookeeper.properties"
        settings = "sasl.mechanism=DIGEST-MD5\nsasl.username=kafka\nsasl.password="
        config.write_text(f"{settings}se-cret\n")
        code, output, errors = run(*command, "--zookeeper-config", str(config))
        assert code == 0, errors
        assert committed(run, "g") == {("g", "orders", 0): 4}
        config.write_text(f"{settings}wrong-secret\n")
        code, output, errors = run(*command, "--zookeeper-config", str(config))
        assert (code, "ZooKeeper at" in errors, "wrong-secret" in output + errors) == (3, True, False), errors


@pytest.mark.broker
@pytest.mark.long
def test_unknown_partitions_are_refused_and_offsets_limited_to_the_log(
    run: Run, ensemble: Ensemble, chroot: str, client: KazooClient, broker: Broker
) -> None:
    workload.create_topic(broker.bootstrap, "from-zookeeper", 2)
    put_offsets(client, "import-z", {("from-zookeeper", "0"): b"9", ("from-zookeeper", "2"): b"0", ("none", "0"): b"1"})
    options = ("--lake", "of-broker", "--bootstrap", broker.bootstrap, "--format", "json")
    code, _, errors = run("run", "--lake", "of-broker", "--bootstrap", broker.bootstrap)
    assert code == 0, errors
    code, output, errors = run("import", ensemble.url(chroot), *options, "--execute")
    assert code == 8, errors
    found = rows(output)
    assert found["import-z", "from-zookeeper", 0]["outcome"] == "done"
    assert "the cluster does not contain partition 2" in found["import-z", "from-zookeeper", 2]["reason"]
    assert "the cluster does not contain partition 0" in found["import-z", "none", 0]["reason"]
    code, output, errors = run("offsets", "--lake", "of-broker", "--group", "import-z", "--format", "json")
    assert {key: row["committed_offset"] for key, row in rows(output).items()} == {("import-z", "from-zookeeper", 0): 0}


@pytest.mark.long
@pytest.mark.usefixtures("lake")
def test_all_offsets_are_read_while_the_leader_of_an_ensemble_is_killed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ensemble(tmp_path / "ensemble", servers=3) as ensemble:
        client = open_client(ensemble)
        expected = {("orders", str(number)): str(number * 3).encode() for number in range(20_000)}
        client.ensure_path("/consumers/g/offsets/orders")
        created = [
            client.create_async(f"/consumers/g/offsets/{topic}/{number}", value)
            for (topic, number), value in expected.items()
        ]
        assert len([result.get() for result in created]) == len(expected)
        client.stop()
        client.close()
        leader = ensemble.leader()
        parts = client_module._parts
        sent: list[str] = []

        def killing(paths: Iterable[str]) -> Iterator[list[str]]:
            for part in parts(paths):
                if len(sent) < 10_000 <= len(sent) + len(part):  # half of the offsets are requested
                    ensemble.kill(leader)
                sent.extend(path for path in part if "/orders/" in path)
                yield part

        monkeypatch.setattr(client_module, "_parts", killing)
        code, output, errors = run("import", ensemble.url(), *OPTIONS, "--format", "json", "--execute")
        assert len(sent) == len(expected)
        assert code == 0, errors
        assert {number: row["committed_offset"] for (_, _, number), row in rows(output).items()} == {
            number: number * 3 for number in range(20_000)
        }
        ensemble.kill((leader + 1) % 3)
        ensemble.kill((leader + 2) % 3)
