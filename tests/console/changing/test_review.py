"""The review of planned tombstones: the evidence, and what approving and rejecting some of them does."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.serving.console import console_of
from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import locate
from offsetlake.log.address import LogAddress
from offsetlake.log.writer.example_log import DAY_S, write
from offsetlake.pipeline import runner
from offsetlake.pipeline.changes.cleanup import plan_cleanup_of_orphans
from offsetlake.queries import questions
from offsetlake.queries.review import orphans, planned_tombstones
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.rules.retention import EXPIRING, RULES
from offsetlake.util.times import to_ms
from offsetlake.web.console.changing.workbench import Workbench
from support.console.changes import copied, form_token, submit
from support.console.served import Page, gate, get, post, running, served
from support.console.visitors import acl_file
from support.e2e.parts_log import Log, part, plain
from support.lakes import new_lake
from support.queries.lakes import commit, small_lake
from support.report.report_rows import TAGS

pytestmark = pytest.mark.slow

NOW = to_ms("2026-01-31T15:00")
OLD = 6
POLICY = RetentionPolicy(7 * DAY_S * 1000, ())


def cycle(folder: Path) -> None:
    """Read the log, and evaluate its retention."""
    log = LogAddress(folder / "log")
    lake = Lake.open(folder / "lake")
    runner.catch_up(Lake.create(lake.location), log, lambda _: None)
    runner.run_jobs(locate(str(folder / "lake")), None, ["expire"], runner.Expiry(POLICY, NOW), lambda _: None)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("review")
    (folder / "log").mkdir()
    write(
        folder / "log",
        [(-10 * DAY_S, f"old-{n}", "orders", n, 70 + n) for n in range(OLD)] + [(0, "billing", "orders", 0, 7)],
    )
    new_lake(folder / "lake")
    cycle(folder)
    return folder


@pytest.fixture
def bench(original: Path, tmp_path: Path) -> Workbench:
    return copied(original, tmp_path)


@pytest.fixture
def port(bench: Workbench, tmp_path: Path) -> Iterator[int]:
    with served(tmp_path / "lake", gate(allows_changes=True), bench=bench) as listening:
        yield listening


def options(folder: Path) -> list[str]:
    return ["--lake", str(folder / "lake"), "--log", str(folder / "log")]


def boxes(page: str, *, offsets_only: bool = False) -> list[str]:
    """Return the values of the check boxes, in the order of groups."""
    values = [str(attributes["value"]) for _, attributes in Page(page).tags if attributes.get("name") == "row"]
    return sorted(value for value in values if not offsets_only or json.loads(value)[1] is not None)


def planned(folder: Path, *, groups: bool = False) -> list[str]:
    """Return the groups of planned tombstones of offsets or, with `groups`, of the groups themselves."""
    rows = planned_tombstones(Lake.open(folder / "lake")).to_pylist()
    return [row["group_id"] for row in rows if (row["topic"] is None) == groups]


def groups(folder: Path) -> set[str]:
    return {*questions.offsets(Lake.open(folder / "lake"))["group_id"].to_pylist()}


@pytest.mark.parametrize("address", ["/review?q=old-1&rule=commit_age", "/review?q=old-1&rule=ended", "/review?q=old"])
def test_the_command_lists_the_rows_of_the_page(port: int, run: object, address: str) -> None:
    shown = Page(get(port, address).text)
    code, out, err = run(*shlex.split(shown.command)[1:], "--format", "json")  # type: ignore[operator]
    assert code == 0, err
    assert [row[1] for row in shown.rows] == [json.loads(line)["group_id"] for line in out.splitlines()]
    assert bool(shown.rows) == ("ended" not in address)


def test_only_the_approved_tombstones_are_written(port: int, tmp_path: Path) -> None:
    page = get(port, "/review")
    assert [row[1] for row in Page(page.text).rows] == [f"old-{n // 2}" for n in range(2 * OLD)]
    assert "commit_age" in Page(page.text).text
    fields = {"show": "tombstones", "decision": "approve", "row": boxes(page.text)[:8]}
    _, done = submit(port, "/review", form_token(port), fields)
    assert "8 of 8 rows changed" in Page(done.text).text
    assert "Offset before" in Page(done.text).text
    assert [row[:2] for row in Page(done.text).rows] == [
        [f"old-{n}", subject] for n in range(4) for subject in (f"orders:{n}", "(the group itself)")
    ]
    assert Page(done.text).links["old-0"] == "/group?group=old-0"
    assert planned(tmp_path) == ["old-4", "old-5"]
    cycle(tmp_path)
    assert groups(tmp_path) == {"old-4", "old-5", "billing"}
    assert planned(tmp_path) == ["old-4", "old-5"]
    again = get(port, "/review")
    assert len(boxes(again.text)) == 4
    _, refused = submit(port, "/review", form_token(port), fields)
    assert "8 of the selected tombstones are not planned any more" in Page(refused.text).text


def test_tombstones_that_an_approval_would_refuse_as_too_old_are_shown_as_such(port: int, tmp_path: Path) -> None:
    needed = "Nothing can be approved now: The planned tombstones are older than the last compaction"
    assert needed not in Page(get(port, "/review").text).text
    write(tmp_path / "log", [(0, "billing", "orders", 0, 8)])
    runner.catch_up(Lake.create(locate(str(tmp_path / "lake"))), LogAddress(tmp_path / "log"), lambda _: None)
    shown = Page(get(port, "/review").text).text
    assert f"{needed} of the tables: run offsetlake expire again" in shown
    assert needed not in Page(get(port, "/review?show=rejected").text).text
    cycle(tmp_path)
    assert needed not in Page(get(port, "/review").text).text


def test_the_command_of_a_decision_has_the_options_of_the_lake_alone(bench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("")
    lake = str(tmp_path / "lake")
    given = {"lake": lake, "log": str(bench.log.folder), "config": str(tmp_path / "settings.toml")}
    with running(console_of(CommandContext(given), gate(allows_changes=True))) as port:
        row = boxes(get(port, "/review").text)[:1]
        _, done = submit(port, "/review", form_token(port), {"show": "tombstones", "decision": "reject", "row": row})
    expected = ["offsetlake", "reject", "/dev/stdin", f"--lake={lake}", f"--config={given['config']}"]
    assert shlex.split(Page(done.text).command.partition(" <<")[0]) == expected


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_the_command_of_a_decision_runs_as_printed(
    bench: Workbench, original: Path, tmp_path: Path, decision: str
) -> None:
    """The lake and the log are put back as they were, and the command decides what the page decided."""
    source = [f"--lake={tmp_path / 'lake'}", f"--log={tmp_path / 'log'}"]
    with served(tmp_path / "lake", gate(allows_changes=True), bench=bench, source=source) as port:
        row = boxes(get(port, "/review").text, offsets_only=True)[:2]
        _, done = submit(port, "/review", form_token(port), {"show": "tombstones", "decision": decision, "row": row})
    decided, command = planned(tmp_path), Page(done.text).command
    assert len(decided) == OLD - 2
    for name in ("lake", "log"):
        shutil.rmtree(tmp_path / name)
        shutil.copytree(original / name, tmp_path / name)
    assert len(planned(tmp_path)) == OLD
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["bash", "-euc", command], env={**os.environ, "PATH": path}, check=True)
    assert planned(tmp_path) == decided


def test_a_log_that_cannot_be_written_is_shown_where_it_is_needed(port: int, tmp_path: Path) -> None:
    (tmp_path / "log").rename(tmp_path / "elsewhere")
    for show, is_needed in (("tombstones", True), ("orphans", True), ("rejected", False), ("incomplete", False)):
        shown = Page(get(port, f"/review?show={show}").text).text
        assert ("Nothing can be approved now: There is no folder" in shown) == is_needed, show


def test_a_refused_tombstone_is_not_shown_as_deleted(port: int, tmp_path: Path) -> None:
    rows = boxes(get(port, "/review").text, offsets_only=True)[:2]
    write(tmp_path / "log", [(0, "old-0", "orders", 0, 71)])
    fields = {"show": "tombstones", "decision": "approve", "row": rows}
    _, done = submit(port, "/review", form_token(port), fields)
    assert [[row[0], row[3], row[4]] for row in Page(done.text).rows] == [
        ["old-0", "not deleted", "refused"],
        ["old-1", "deleted", "emitted"],
    ]


def test_an_approval_is_undone(port: int, tmp_path: Path) -> None:
    token = form_token(port)
    _, done = submit(
        port,
        "/review",
        token,
        {"show": "tombstones", "decision": "approve", "row": boxes(get(port, "/review").text, offsets_only=True)[0]},
    )
    run_id = next(attributes["value"] for _, attributes in Page(done.text).tags if attributes.get("name") == "run")
    address, _ = submit(port, "/change", token, {"kind": "undo", "run": run_id})
    _, undone = submit(port, f"{address}/execute", token, {})
    assert "The change was made" in undone.text
    assert "old-0" in groups(tmp_path)


@pytest.mark.long
def test_rejected_tombstones_are_not_planned_again_until_a_commit(port: int, tmp_path: Path, run: object) -> None:
    page = get(port, "/review")
    fields = {"show": "tombstones", "decision": "reject", "row": boxes(page.text, offsets_only=True)[:2]}
    _, done = submit(port, "/review", form_token(port), fields)
    shown = Page(done.text)
    assert "The tombstones were rejected2 rows. These offsets and groups stay" in shown.text.replace("\n", "")
    assert [row[:3] for row in shown.rows] == [["old-0", "orders:0", "70"], ["old-1", "orders:1", "71"]]
    assert [row[3].startswith("rejected by os:") for row in shown.rows] == [True, True]
    assert shown.links["All rejected tombstones"] == "/review?show=rejected"
    assert "deleted" not in shown.text
    assert planned(tmp_path) == [f"old-{n}" for n in range(2, OLD)]
    cycle(tmp_path)
    assert planned(tmp_path) == planned(tmp_path, groups=True) == [f"old-{n}" for n in range(2, OLD)]
    rejected = Page(get(port, "/review?show=rejected").text)
    assert [row[1] for row in rejected.rows] == ["old-0", "old-1"]
    code, _, errors = run("check", "--full", "--lake", str(tmp_path / "lake"))  # type: ignore[operator]
    assert code == 0, errors
    code, _, _ = run("emit", "--lake", str(tmp_path / "lake"))  # type: ignore[operator]
    assert code == 0
    write(tmp_path / "log", [(-9 * DAY_S, "old-0", "orders", 0, 71)])
    cycle(tmp_path)
    assert groups(tmp_path) == {"old-0", "old-1", "billing"}
    assert planned(tmp_path) == ["old-0"]
    assert [row[1] for row in Page(get(port, "/review?show=rejected").text).rows] == ["old-1"]


def test_a_rejection_is_taken_back(port: int, tmp_path: Path) -> None:
    fields = {
        "show": "tombstones",
        "decision": "reject",
        "row": boxes(get(port, "/review").text, offsets_only=True)[:2],
    }
    submit(port, "/review", form_token(port), fields)
    cycle(tmp_path)
    rejected = boxes(get(port, "/review?show=rejected").text)
    assert len(rejected) == 2
    fields = {"show": "rejected", "decision": "take_back", "row": rejected[:1]}
    _, done = submit(port, "/review", form_token(port), fields)
    shown = Page(done.text)
    assert "The rejections were taken back1 row. The next offsetlake expire plans" in shown.text.replace("\n", "")
    assert "can be rejected again" in shown.text
    ((group, offset, value, decision),) = shown.rows
    assert (group, offset, value) == ("old-0", "orders:0", "70")
    assert decision.startswith("rejection taken back by os:")
    assert shown.links["All rejected tombstones"] == "/review?show=rejected"
    assert "deleted" not in shown.text
    assert planned(tmp_path) == [f"old-{n}" for n in range(2, OLD)]
    cycle(tmp_path)  # no table but tombstones has changed
    assert planned(tmp_path) == ["old-0", *(f"old-{n}" for n in range(2, OLD))]
    _, refused = submit(port, "/review", form_token(port), fields)
    assert "1 of the selected tombstones is not rejected any more" in Page(refused.text).text


@pytest.mark.long
def test_approved_orphans_are_deleted_as_cleanup_does_and_restored(port: int, tmp_path: Path, run: object) -> None:
    page = get(port, "/review?show=orphans")
    assert [row[1:4] for row in Page(page.text).rows] == [[f"old-{n}", "no_members", "all"] for n in range(OLD)]
    fields = {"show": "orphans", "decision": "approve", "row": boxes(page.text)[:2]}
    address, plan = submit(port, "/review", form_token(port), fields)
    shown = Page(plan.text)
    assert "nothing is changed yet" in shown.text
    assert groups(tmp_path) == {"billing", *(f"old-{n}" for n in range(OLD))}
    commands = [shlex.split(command) for command in shown.command.split(" && ")]
    outputs = [run(*words[1:-1], "--format", "json", *options(tmp_path), *words[-1:]) for words in commands]  # type: ignore[operator]
    assert [code for code, _, _ in outputs] == [0, 0]
    assert len(shown.rows) == sum(len(out.splitlines()) for _, out, _ in outputs) == 4
    _, done = submit(port, f"{address}/execute", form_token(port), {})
    assert "The change was made" in done.text
    assert groups(tmp_path) == {"billing", *(f"old-{n}" for n in range(2, OLD))}
    _, again = submit(port, "/review", form_token(port), fields)
    assert "Of the selected groups, 2 are in use or do not exist any more: select again." in Page(again.text).text
    run_id = next(attributes["value"] for _, attributes in Page(done.text).tags if attributes.get("name") == "run")
    address, _ = submit(port, "/change", form_token(port), {"kind": "undo", "run": run_id})
    submit(port, f"{address}/execute", form_token(port), {})
    assert groups(tmp_path) == {"billing", *(f"old-{n}" for n in range(OLD))}


def test_approved_incomplete_commits_are_repaired(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.batch(*(plain(partition, 10 + partition) for partition in range(3)))
    log.batch(*(part(partition, 20 + partition, size=4) for partition in range(3)))
    log.read()
    bench = Workbench(locate(str(tmp_path / "lake")), LogAddress(tmp_path / "log"))
    with served(tmp_path / "lake", gate(allows_changes=True), bench=bench) as port:
        page = get(port, "/review?show=incomplete")
        selected = boxes(page.text)
        assert len(selected) == 3
        fields = {"show": "incomplete", "decision": "approve", "row": selected[:2]}
        address, plan = submit(port, "/review", form_token(port), fields)
        assert [row[1:4] for row in Page(plan.text).rows] == [["t:0", "10", "10"], ["t:1", "11", "11"]]
        assert Page(plan.text).command == "offsetlake repair"
        _, done = submit(port, f"{address}/execute", form_token(port), {})
        assert "There is no undo" in Page(done.text).text
        assert [(row[1], row[2]) for row in log.pending()] == [(2, 22)]
        assert log.offsets() == {0: 10, 1: 11, 2: 12}
        _, again = submit(port, "/review", form_token(port), fields)
        assert "None of the selected commits is incomplete any more" in Page(again.text).text


def test_rejected_rows_of_audits_are_not_listed_until_they_change(port: int, tmp_path: Path, run: object) -> None:
    token, rows = form_token(port), boxes(get(port, "/review?show=orphans").text)
    decision = {"show": "orphans", "decision": "reject", "row": rows[:2]}
    done = Page(submit(port, "/review", token, decision)[1].text)
    assert "The rows were rejected2 rows. They stay as they are" in done.text.replace("\n", "")
    since = "since 2026-01-21T14:00:00.000Z"
    assert [row[:2] for row in done.rows] == [["old-0", since], ["old-1", since]]
    assert all(row[2].startswith("rejected by os:") for row in done.rows)
    assert done.command.startswith("offsetlake reject --of=orphans /dev/stdin")
    assert done.links["All kept rows"] == "/review?show=kept"
    assert boxes(get(port, "/review?show=orphans").text) == rows[2:]
    kept = Page(get(port, "/review?show=kept").text)
    listing = shlex.split(kept.command.split(" && ")[0])[1:]
    code, out, _ = run(*listing, "--format", "json")  # type: ignore[operator]
    assert (code, [json.loads(line)["group_id"] for line in out.splitlines()]) == (0, ["old-0", "old-1"])
    assert [(row[1], "os:" in "".join(row)) for row in kept.rows] == [("old-0", True), ("old-1", True)]
    assert [since in row for row in kept.rows] == [True, True]
    back = {"show": "kept", "decision": "take_back", "row": boxes(get(port, "/review?show=kept").text)[1:]}
    listed = Page(submit(port, "/review", token, back)[1].text)
    assert "The rejections were taken back1 row. They are listed for review again" in listed.text.replace("\n", "")
    assert [row[:2] for row in listed.rows] == [["old-1", since]]
    assert boxes(get(port, "/review?show=orphans").text) == rows[1:]
    again = Page(submit(port, "/review", token, back)[1].text)
    assert "1 of the selected rows is not rejected any more" in again.text
    write(tmp_path / "log", [(-9 * DAY_S, "old-0", "orders", 0, 71)])
    cycle(tmp_path)
    assert len(boxes(get(port, "/review?show=orphans").text)) == OLD
    _, refused = submit(port, "/review", token, decision | {"row": rows[:1]})
    assert "1 of the selected rows is not listed any more" in refused.text
    lake = ["--lake", str(tmp_path / "lake")]
    _, out, _ = run("audit", "orphan_groups", "--format", "json", *lake)  # type: ignore[operator]
    (tmp_path / "used.jsonl").write_text(out.splitlines()[0])
    code, _, errors = run("reject", "--of", "orphans", str(tmp_path / "used.jsonl"), *lake)  # type: ignore[operator]
    assert (code, "1 row was rejected" in errors) == (0, True)
    assert [row[1] for row in Page(get(port, "/review?show=kept").text).rows] == ["old-0"], "what has ended is removed"
    assert len(boxes(get(port, "/review?show=orphans").text)) == OLD - 1
    code, _, errors = run("reject", "--of", "orphans", "--take-back", str(tmp_path / "used.jsonl"), *lake)  # type: ignore[operator]
    assert (code, "1 row was taken back" in errors) == (0, True)


def test_rejected_incomplete_commits_and_transactions_stay(tmp_path: Path) -> None:
    row = {"group_id": "g", "topic": "t", "partition": 0, "committed_offset": 5, "log_timestamp": 1_000}
    part_of_commit = row | {"log_offset": 1, "producer_epoch": None, "commit_id": 1, "commit_size": 2}
    small_lake(
        tmp_path / "lake",
        offset_commits=[commit(1, 4, log_timestamp=1_000, group_id="g", topic="t", partition=0)],
        pending_offsets=[part_of_commit, row | {"log_offset": 2, "producer_id": 7}],
    )
    bench = Workbench(locate(str(tmp_path / "lake")), LogAddress(tmp_path / "log"))
    with served(tmp_path / "lake", gate(allows_changes=True), bench=bench) as port:
        token = form_token(port)
        for subject, identified in (
            ("incomplete", "topic t, partition 0, log partition 0, log offset 1"),
            ("hanging", "producer id 7, log partition 0, first log offset 2"),
        ):
            rows = boxes(get(port, f"/review?show={subject}").text)
            assert len(rows) == 1
            listed = Page(get(port, f"/review?show={subject}").text).text
            assert ("Log partition" in listed) == (subject == "hanging"), "the advice needs it"
            decision = {"show": subject, "decision": "reject", "row": rows}
            _, done = submit(port, "/review", token, decision)
            assert [row[:2] for row in Page(done.text).rows] == [["g", identified]]
            assert boxes(get(port, f"/review?show={subject}").text) == []
        assert len(boxes(get(port, "/review?show=kept").text)) == 2


def test_only_the_unused_topics_of_an_orphan_are_deleted(tmp_path: Path) -> None:
    now, row = 10 * DAY_S * 1000, {"partition": 0, "committed_offset": 5, "log_offset": 1}
    topics = {"reader": ("read", "left"), "lost": ("read", "dropped"), "gone": ("read",)}
    stored = [
        {**row, "group_id": group, "topic": topic, "log_timestamp": 1_000, "commit_timestamp": 1_000}
        for group, names in topics.items()
        for topic in names
    ]
    member = {"protocol_type": "consumer", "subscription": "known", "subscribed_topics": ["read"]}
    lake = small_lake(
        tmp_path / "lake",
        offsets=stored,
        groups=[
            {"group_id": "reader", "state": "Stable", "member_count": 1, **member},
            {"group_id": "lost", "state": "Empty"},
        ],
        offset_commits=[commit(9, 4, log_timestamp=now, group_id="reader", topic="read", partition=0)],
        tombstones=[{"group_id": "x", "topic": "dropped", "partition": 0, "outcome": "gone", "rule": "topic_deleted",
                     "run_id": 1, "judged_offset": 1}],
    )  # fmt: skip
    found = {row["group_id"]: (row["why"], row["unused_topics"]) for row in orphans(lake).to_pylist()}
    assert found == {
        "reader": ("not_subscribed", ["left"]), "lost": ("topics_deleted", ["dropped"]), "gone": ("group_gone", None)
    }  # fmt: skip
    rows = plan_cleanup_of_orphans(lake, [*topics], now, live=False).to_pylist()
    assert {(row["group_id"], row["topic"], row["reason"]) for row in rows} == {
        ("reader", "left", None), ("lost", "dropped", None), ("gone", "read", None)
    }  # fmt: skip
    with pytest.raises(BadRequest, match="Of the selected groups, 1 is in use or does not exist any more"):
        plan_cleanup_of_orphans(lake, ["reader", "other"], now, live=False)


def test_the_commands_make_the_same_decisions(bench: Workbench, tmp_path: Path, run: object) -> None:
    lake = ["--lake", str(tmp_path / "lake")]
    _, out, _ = run("tombstones", "--outcome", "planned", "--format", "json", *lake)  # type: ignore[operator]
    lines = [line for line in out.splitlines() if json.loads(line)["topic"] is not None]
    (tmp_path / "kept.jsonl").write_text("\n".join(lines[:1]))
    (tmp_path / "approved.jsonl").write_text("\n".join(lines[1:3]))
    code, _, errors = run("reject", str(tmp_path / "kept.jsonl"), *lake)  # type: ignore[operator]
    assert (code, "1 tombstone was withdrawn" in errors) == (0, True)
    code, out, _ = run("emit", "--only", str(tmp_path / "approved.jsonl"), *lake, "--format", "json")  # type: ignore[operator]
    assert code == 0
    assert dict(json.loads(out)["counts"])["emitted"] == 2
    assert planned(tmp_path) == ["old-3", "old-4", "old-5"]
    code, _, errors = run("reject", str(tmp_path / "kept.jsonl"), *lake)  # type: ignore[operator]
    assert (code, "not planned any more" in errors) == (2, True)
    code, _, errors = run("reject", "--take-back", str(tmp_path / "kept.jsonl"), *lake)  # type: ignore[operator]
    assert (code, "1 rejection was taken back" in errors) == (0, True)
    (tmp_path / "kept.jsonl").write_text('{"group_id": 1}\n')
    code, _, errors = run("reject", str(tmp_path / "kept.jsonl"), *lake)  # type: ignore[operator]
    assert (code, "line 1: not a row" in errors) == (2, True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"show": "tombstones", "decision": "approve"}, "Select at least one"),
        ({"show": "tombstones", "decision": "explode", "row": '["old-0", "orders", 0, 0]'}, "Invalid decision"),
        ({"show": "tombstones", "decision": "approve", "row": "x"}, "invalid row"),
        ({"show": "tombstones", "decision": "approve", "row": "[1, 2]"}, "invalid row"),
        ({"show": "tombstones", "decision": "approve", "row": '[null, "t", 0, 0]'}, "requires the permission"),
        ({"show": "tombstones", "decision": "approve", "row": '{"a": 1}'}, "invalid row"),
    ],
)
def test_invalid_decisions_are_explained(port: int, fields: dict[str, object], message: str) -> None:
    answer = post(port, "/review", {"form_token": form_token(port), **fields})
    assert (answer.status, message in Page(answer.text).text) == (400, True)


def test_groups_are_filtered_by_pattern_rule_and_permission(bench: Workbench, tmp_path: Path) -> None:
    acl = acl_file(tmp_path, ("*", "old-[012]", ["read"]), ("*", "old-1", ["admin"]))
    visitors = gate(allows_changes=True, acl=acl)
    with served(tmp_path / "lake", visitors, bench=bench) as port:
        page = Page(get(port, "/review").text)
        assert [row[1] for row in page.rows] == [f"old-{n // 2}" for n in range(6)]
        assert "6 rows" in page.text
        assert [json.loads(box)[0] for box in boxes(get(port, "/review").text)] == ["old-1"] * 2
        assert [row[0] for row in Page(get(port, "/review?q=old-[02]").text).rows] == [
            "old-0",
            "old-0",
            "old-2",
            "old-2",
        ]
        options = re.findall(r'<option value="(\w+)">\1: ', get(port, "/review").text)
        assert options == [
            "topic_deleted", "explicit", "group_empty", "unsubscribed", "commit_age",
            "nothing_left", "share_idle", "cleanup",
        ]  # fmt: skip
        assert [name for name, expires in zip(RULES, EXPIRING, strict=True) if expires] == options[:5]
        assert "nothing_left: the group is empty, and has no offsets or only offsets that expire" in page.text
        assert [row[1] for row in Page(get(port, "/review?rule=nothing_left").text).rows if row[1] == "old-1"] == [
            "old-1"
        ]
        assert Page(get(port, "/review?rule=cleanup").text).rows == []
        fields = {"show": "tombstones", "decision": "approve", "form_token": visitors._form_token}
        assert post(port, "/review", {**fields, "row": '["old-0","orders",0,0]'}).status == 400
        assert post(port, "/review", {**fields, "show": "orphans", "row": '["old-0", 1]'}).status == 400
        for name in ("rejected", "orphans", "incomplete", "hanging"):
            assert "billing" not in get(port, f"/review?show={name}").text
        assert get(port, "/review?show=x").status == 404
    assert len(planned(tmp_path)) == OLD


@pytest.mark.parametrize("name", [TAGS, '"onfocus="alert(1)', "\x1b[31mred"])
def test_names_of_hostile_clients_stay_text(tmp_path: Path, name: str) -> None:
    row = {"group_id": name, "topic": name, "partition": 0, "log_partition": 1}
    times = {"log_offset": 1, "log_timestamp": 1_000}
    small_lake(
        tmp_path / "lake",
        groups=[{"group_id": name}],
        offset_commits=[commit(1, 4, log_timestamp=1_000, **row)],
        offsets=[row | {"committed_offset": 4, "log_offset": 1}],
        pending_offsets=[
            row | times | {"committed_offset": 5, "producer_epoch": None, "commit_id": 1, "commit_size": 2},
            row | times | {"committed_offset": 5, "producer_id": 7, "log_offset": 2},
        ],
        tombstones=[
            row | {"outcome": "planned", "rule": "commit_age", "run_id": 1, "judged_offset": 1, "judged_timestamp": 5}
        ],
    )
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
    with served(tmp_path / "lake", gate(allows_changes=True)) as port:
        for subject in ("tombstones", "rejected", "orphans", "incomplete", "hanging"):
            page = Page(get(port, f"/review?show={subject}").text)
            if subject in {"tombstones", "incomplete", "hanging"}:
                assert shown in page.text, subject
            assert {a.get("src") for tag, a in page.tags if tag == "script"} <= {
                "/static/console.js", "/static/review.js"
            }  # fmt: skip
            assert not [key for _, attributes in page.tags for key in attributes if key.startswith("on")]
