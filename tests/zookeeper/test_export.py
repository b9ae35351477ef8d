"""`offsetlake export` writes offsets to a real ZooKeeper, each group as a whole or not at all, and undoes it."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import make_acl, make_digest_acl

from offsetlake.zookeeper import writing
from offsetlake.zookeeper.address import ZooKeeperAddress
from offsetlake.zookeeper.client import connected
from offsetlake.zookeeper.writing import OffsetChange
from support.command_line import Run
from support.zookeeper.ensemble import Ensemble, open_client, put_offsets

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
OPTIONS = ("--lake", "lake", "--log", "log", "--format", "json")
COLUMNS = ["group_id", "topic", "partition", "path", "previous_offset", "committed_offset", "outcome", "reason"]
"""The columns of the plan, which programs rely on: do not remove or rename one."""

Contents = dict[str, bytes]


def contents(client: KazooClient) -> Contents:
    """Return the contents of the znodes of all offsets."""
    found: Contents = {}

    def visit(path: str) -> None:
        for name in client.get_children(path):
            child = f"{path}/{name}"
            if child.count("/") == 5 and child.split("/")[3] == "offsets":
                found[child] = client.get(child)[0]
            else:
                visit(child)

    visit("/consumers")
    return found


def answer(output: str) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in map(json.loads, output.splitlines())}


def committed(run: Run, *groups: str) -> Contents:
    """Return the contents that the znodes of groups of the lake should have."""
    code, output, errors = run("offsets", "--lake", "lake", "--format", "json")
    assert code == 0, errors
    return {
        f"/consumers/{row['group_id']}/offsets/{row['topic']}/{row['partition']}": b"%d" % row["committed_offset"]
        for row in map(json.loads, output.splitlines())
        if row["group_id"] in groups
    }


def undo_of(errors: str) -> list[str]:
    [line] = [line for line in errors.splitlines() if "To undo them:" in line]
    return shlex.split(line.partition("To undo them: offsetlake ")[2])


@pytest.fixture
def empty(client: KazooClient) -> KazooClient:
    """A client of a chroot in which no consumer ever was."""
    client.create("/consumers")
    return client


@pytest.mark.usefixtures("lake")
def test_offsets_are_planned_written_and_restored(
    run: Run, ensemble: Ensemble, chroot: str, empty: KazooClient, tmp_path: Path
) -> None:
    expected = committed(run, "billing")
    assert len(expected) > 1
    changed, same = sorted(expected)[:2]
    for path, content in ((changed, b"\xffx"), (same, expected[same]), ("/consumers/other/offsets/t/0", b"1")):
        empty.create(path, content, makepath=True)
    before = contents(empty)
    command = ("export", ensemble.url(chroot), "billing", *OPTIONS)
    code, output, errors = run(*command)
    assert code == 0, errors
    assert [*json.loads(output.splitlines()[0])] == COLUMNS
    rows = answer(output)
    assert {path: b"%d" % row["committed_offset"] for path, row in rows.items()} == expected
    assert {path for path, row in rows.items() if row["outcome"] == "unchanged"} == {same}
    assert {row["outcome"] for path, row in rows.items() if path != same} == {"planned"}
    assert (contents(empty), [*tmp_path.glob("export-*")]) == (before, [])
    code, output, errors = run(*command, "--execute")
    assert code == 0, errors
    assert {row["outcome"] for path, row in answer(output).items() if path != same} == {"done"}
    assert contents(empty) == before | expected
    code, output, _ = run(*command, "--execute")
    assert (code, {row["outcome"] for row in answer(output).values()}) == (0, {"unchanged"})
    assert len([*tmp_path.glob("export-*")]) == 1
    code, output, again = run(*undo_of(errors), "--execute", "--format", "json")
    assert (code, contents(empty)) == (0, before), again
    assert run(*undo_of(again), "--execute")[0] == 0
    assert contents(empty) == before | expected
    code, output, errors = run("import", ensemble.url(chroot), "billing", *OPTIONS)
    assert (code, {json.loads(line)["outcome"] for line in output.splitlines()}) == (0, {"unchanged"})


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize("path", ["ids/app_host-1", "owners/orders/0"])
def test_groups_with_active_consumers_are_refused_by_name(
    run: Run, ensemble: Ensemble, chroot: str, empty: KazooClient, path: str
) -> None:
    empty.create(f"/consumers/billing/{path}", b"app_host-1", ephemeral=True, makepath=True)
    command = ("export", ensemble.url(chroot), "*", *OPTIONS, "--execute")
    code, output, _ = run(*command)
    rows = answer(output)
    of_billing = [row for path, row in rows.items() if path.startswith("/consumers/billing/")]
    assert (code, {row["outcome"] for row in of_billing}) == (8, {"refused"})
    assert all("it has active consumers in ZooKeeper: app_host-1" in row["reason"] for row in of_billing)
    assert {path for path, row in rows.items() if row["outcome"] == "done"} == {*contents(empty)}
    assert contents(empty)
    empty.delete(f"/consumers/billing/{path}")
    run(*command)
    assert contents(empty).items() >= committed(run, "billing").items()


@pytest.mark.usefixtures("lake")
def test_groups_with_members_or_open_transactions_are_refused(
    run: Run, ensemble: Ensemble, chroot: str, empty: KazooClient, tmp_path: Path
) -> None:
    shutil.copytree(TESTS / "fixtures" / "broker-log", tmp_path / "of-broker")
    assert run("run", "--lake", "used", "--log", "of-broker")[0] == 0
    code, output, _ = run("groups", "--lake", "used", "--format", "json")
    with_members = {row["group_id"] for row in map(json.loads, output.splitlines()) if row["member_count"]}
    command = ("export", ensemble.url(chroot), "--lake", "used", "--log", "of-broker", "--format", "json", "--execute")
    code, output, errors = run(*command)
    assert code == 8, errors
    rows = answer(output)
    refused = {path.split("/")[2]: row for path, row in rows.items() if row["outcome"] == "refused"}
    assert {*refused} == {"ledger"} | with_members & {path.split("/")[2] for path in rows}
    assert "it has members: rdkafka" in refused["fraud-detection"]["reason"]
    assert "an open transaction" in refused["ledger"]["reason"]
    assert contents(empty) == {
        path: b"%d" % row["committed_offset"] for path, row in rows.items() if row["outcome"] == "done"
    }


@pytest.mark.usefixtures("lake")
def test_group_is_written_completely_or_not_if_a_znode_is_changed_meanwhile(
    run: Run, ensemble: Ensemble, chroot: str, empty: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_offsets(empty, "billing", {("orders", "0"): b"1"})
    original = writing.write
    commit = ("/consumers/billing/offsets/orders/0", b"2")

    def late(*arguments: Any) -> None:
        empty.set(*commit)
        original(*arguments)

    monkeypatch.setattr(writing, "write", late)
    code, output, errors = run("export", ensemble.url(chroot), *OPTIONS, "--execute")
    rows = answer(output)
    assert code == 8, errors
    assert {row["outcome"] for path, row in rows.items() if "/billing/" in path} == {"refused"}
    assert "changed meanwhile" in rows[commit[0]]["reason"]
    done = {path for path, row in rows.items() if row["outcome"] == "done"}
    assert contents(empty) == {**{path: b"%d" % rows[path]["committed_offset"] for path in done}, commit[0]: commit[1]}
    assert done


@pytest.mark.usefixtures("lake")
def test_what_was_changed_since_is_not_undone(run: Run, ensemble: Ensemble, chroot: str, empty: KazooClient) -> None:
    expected = committed(run, "billing")
    code, _, errors = run("export", ensemble.url(chroot), "billing", *OPTIONS, "--execute")
    assert code == 0, errors
    path = sorted(expected)[0]
    empty.set(path, b"12345")
    code, output, errors = run(*undo_of(errors), "--execute", "--format", "json")
    assert code == 8, errors
    reason = f"{path} contains '12345' now, not '{expected[path].decode()}'"
    assert {row["reason"] for row in answer(output).values() if row["outcome"] == "refused"} == {reason}
    assert contents(empty) == {path: b"12345"}


@pytest.mark.usefixtures("lake")
def test_acls_are_obeyed_and_credentials_are_in_no_file(
    run: Run, ensemble: Ensemble, chroot: str, empty: KazooClient, tmp_path: Path
) -> None:
    put_offsets(empty, "billing", {("orders", "0"): b"1"})
    acl = [make_digest_acl("kafka", "se=cret", all=True), make_acl("world", "anyone", read=True)]
    empty.set_acls("/consumers/billing/offsets/orders/0", acl)
    command = ("export", ensemble.url(chroot), "billing", *OPTIONS, "--execute")
    code, output, errors = run(*command)
    assert code == 8, errors
    assert {row["reason"] for row in answer(output).values()} == {
        "an ACL forbids to write a znode of the group: check --zookeeper-config"
    }
    assert contents(empty) == {"/consumers/billing/offsets/orders/0": b"1"}
    (tmp_path / "own.properties").write_text("digest.user=kafka\ndigest.password=se=cret\n")
    code, output, errors = run(*command, "--zookeeper-config", "own.properties")
    assert (code, contents(empty)) == (0, committed(run, "billing")), errors
    assert "se=cret" not in output + errors + "".join(file.read_text() for file in tmp_path.glob("export-*"))
    assert undo_of(errors)[2:4] == ["--zookeeper-config", "own.properties"]


@pytest.mark.usefixtures("lake")
def test_wrong_places_and_files_are_errors(run: Run, ensemble: Ensemble, chroot: str, tmp_path: Path) -> None:
    code, _, errors = run("export", ensemble.url(chroot), *OPTIONS)
    assert (code, f"ZooKeeper has no znode {chroot}/consumers" in errors) == (2, True), errors
    code, _, errors = run("export", "offsets.csv", *OPTIONS)
    assert (code, "Invalid address of ZooKeeper" in errors) == (2, True)
    code, _, errors = run("export", ensemble.url(chroot), "none", *OPTIONS)
    assert (code, "There is no group 'none'" in errors) == (2, True)
    good = {"path": "/consumers/g/offsets/t/0", "previous": None, "content": "1"}
    for bad in ("", "[]", "{", "7", json.dumps(good | {"path": "/brokers/g/offsets/t/0"}), json.dumps({"path": "/x"})):
        (tmp_path / "undo.jsonl").write_text(f"{json.dumps(good)}\n{bad}\n")
        code, _, errors = run("export", ensemble.url(chroot), "--undo", "undo.jsonl", *OPTIONS)
        assert (code, "line 2 is not a change of an offset" in errors) == (2, True), bad
    code, _, errors = run("export", ensemble.url(chroot), "--undo", "absent.jsonl", *OPTIONS)
    assert (code, "Cannot read absent.jsonl" in errors) == (2, True)
    code, _, errors = run("export", ensemble.url(chroot), "billing", "--undo", "undo.jsonl", *OPTIONS)
    assert (code, "omit PATTERN" in errors) == (2, True)


@pytest.mark.parametrize("name", ["a/b", "..", ".", "", "a\x01", "\U0001f600"])
def test_groups_whose_names_no_znode_can_have_are_refused(
    ensemble: Ensemble, chroot: str, empty: KazooClient, name: str
) -> None:
    changes = [OffsetChange(name, "t", 0, b"1"), OffsetChange("a b\u2044\u00fc", "t", 0, b"2")]
    execute(ensemble, chroot, changes)
    assert [change.outcome for change in changes] == ["refused", "done"]
    assert contents(empty) == {"/consumers/a b\u2044\u00fc/offsets/t/0": b"2"}


def execute(ensemble: Ensemble, chroot: str, changes: Sequence[OffsetChange]) -> None:
    with connected(ZooKeeperAddress.parse(ensemble.url(chroot), {})) as client:
        writing.compare(client, changes)
        writing.write(client, changes, lambda _: None)


def test_group_that_is_too_large_for_one_request_takes_several(
    ensemble: Ensemble, chroot: str, empty: KazooClient
) -> None:
    topics = [f"{number}-{'x' * 240}" for number in range(4)]
    changes = [OffsetChange("g", topic, number, b"%d" % number) for topic in topics for number in range(1_000)]
    sizes = [len(request) for request in writing.requests(changes)]
    assert sum(sizes) == len(changes)
    assert len(sizes) > 3
    execute(ensemble, chroot, changes)
    assert {change.outcome for change in changes} == {"done"}
    assert contents(empty) == {change.path: change.content for change in changes}


def killed(folder: Path, command: Sequence[str], number: int) -> int:
    """Run a command that is killed before, for an odd number after, it sends a request; return its exit code."""
    return subprocess.run(
        [sys.executable, "-m", "support.zookeeper.killed_export", str(number), *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        check=False,
    ).returncode


@pytest.mark.long
def test_export_killed_at_any_request_and_run_again(
    run: Run, ensemble: Ensemble, chroot: str, empty: KazooClient, lake: Path
) -> None:
    command = ("export", ensemble.url(chroot), *OPTIONS, "--execute")
    assert killed(lake.parent, command, 10_000) == 0
    expected = contents(empty)
    groups = {path.split("/")[2] for path in expected}
    assert len(groups) > 2
    for number in range(2 * len(groups)):
        empty.delete("/consumers", recursive=True)
        empty.create("/consumers")
        for file in lake.parent.glob("export-*"):
            file.unlink()
        assert killed(lake.parent, command, number) == -signal.SIGKILL
        written = contents(empty)
        assert written.items() <= expected.items()
        for group in groups:
            of_group = {path for path in expected if path.split("/")[2] == group}
            assert len(of_group & {*written}) in {0, len(of_group)}
        [saved] = lake.parent.glob("export-*")
        if number % 3 == 0:
            assert run("export", ensemble.url(chroot), "--undo", saved.name, "--execute")[0] == 0
            assert contents(empty) == {}
        assert killed(lake.parent, command, 10_000) == 0
        assert contents(empty) == expected


@pytest.mark.long
def test_all_offsets_are_written_while_the_leader_of_an_ensemble_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = [
        OffsetChange(f"g{group:04}", "t", number, b"%d" % (group + number))
        for group in range(2_000)
        for number in range(4)
    ]
    with Ensemble(tmp_path / "ensemble", servers=3) as ensemble:
        client = open_client(ensemble)
        client.create("/consumers")
        leader = ensemble.leader()
        send = writing._send
        sent: list[str] = []

        def killing(to: KazooClient, request: list[OffsetChange], missing: set[str]) -> Any:
            sent.append(request[0].group_id)
            result = send(to, request, missing)
            if len(sent) == 1_000:
                ensemble.kill(leader)
            return result

        monkeypatch.setattr(writing, "_send", killing)
        execute(ensemble, "", changes)
        assert {change.outcome for change in changes} == {"done"}
        found = {}
        for change in changes:
            try:
                found[change.path] = client.retry(client.get, change.path)[0]
            except NoNodeError:
                found[change.path] = None
        assert found == {change.path: change.content for change in changes}
        client.stop()
        client.close()
