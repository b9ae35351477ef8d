"""The review of planned tombstones: the evidence, and what approving and rejecting some of them does."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from offsetlake.cli.example_log import DAY_S, write
from offsetlake.console.changing.workbench import Workbench
from offsetlake.lake.lake import Lake
from offsetlake.location.locate import locate
from offsetlake.log.address import LogAddress
from offsetlake.pipeline import runner
from offsetlake.queries import questions
from offsetlake.queries.review import planned_tombstones
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.util.times import to_ms
from support.console.changes import form_token, submit
from support.console.served import Page, gate, get, post, served
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
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    return Workbench(locate(str(tmp_path / "lake")), LogAddress(tmp_path / "log"))


@pytest.fixture
def port(bench: Workbench, tmp_path: Path) -> Iterator[int]:
    with served(tmp_path / "lake", gate(allows_changes=True), bench=bench) as listening:
        yield listening


def boxes(page: str, *, offsets_only: bool = False) -> list[str]:
    """Return the values of the check boxes, in the order of groups."""
    values = [str(attributes["value"]) for _, attributes in Page(page).tags if attributes.get("name") == "tombstone"]
    return sorted(value for value in values if not offsets_only or json.loads(value)[1] is not None)


def planned(folder: Path, *, groups: bool = False) -> list[str]:
    """Return the groups of planned tombstones of offsets or, with `groups`, of the groups themselves."""
    rows = planned_tombstones(Lake.open(folder / "lake")).to_pylist()
    return [row["group_id"] for row in rows if (row["topic"] is None) == groups]


def groups(folder: Path) -> set[str]:
    return {*questions.offsets(Lake.open(folder / "lake"))["group_id"].to_pylist()}


def test_only_the_approved_tombstones_are_written(port: int, tmp_path: Path) -> None:
    page = get(port, "/review")
    assert [row[1] for row in Page(page.text).rows] == [f"old-{n // 2}" for n in range(2 * OLD)]
    assert "commit_age" in Page(page.text).text
    fields = {"decision": "approve", "tombstone": boxes(page.text)[:8]}
    _, done = submit(port, "/review", form_token(port), fields)
    assert "8 of 8 rows changed" in Page(done.text).text
    assert planned(tmp_path) == ["old-4", "old-5"]
    cycle(tmp_path)
    assert groups(tmp_path) == {"old-4", "old-5", "billing"}
    assert planned(tmp_path) == ["old-4", "old-5"]
    again = get(port, "/review")
    assert len(boxes(again.text)) == 4
    _, refused = submit(port, "/review", form_token(port), fields)
    assert "8 of the selected tombstones are not planned any more" in Page(refused.text).text


def test_an_approval_is_undone(port: int, tmp_path: Path) -> None:
    token = form_token(port)
    _, done = submit(
        port,
        "/review",
        token,
        {"decision": "approve", "tombstone": boxes(get(port, "/review").text, offsets_only=True)[0]},
    )
    run_id = next(attributes["value"] for _, attributes in Page(done.text).tags if attributes.get("name") == "run")
    address, _ = submit(port, "/change", token, {"kind": "undo", "run": run_id})
    _, undone = submit(port, f"{address}/execute", token, {})
    assert "The change was made" in undone.text
    assert "old-0" in groups(tmp_path)


def test_rejected_tombstones_are_not_planned_again_until_a_commit(port: int, tmp_path: Path, run: object) -> None:
    page = get(port, "/review")
    fields = {"decision": "reject", "tombstone": boxes(page.text, offsets_only=True)[:2]}
    _, done = submit(port, "/review", form_token(port), fields)
    assert "2 of 2 rows changed" in Page(done.text).text
    assert "rejected by os:" in done.text
    assert planned(tmp_path) == [f"old-{n}" for n in range(2, OLD)]
    cycle(tmp_path)
    assert planned(tmp_path) == planned(tmp_path, groups=True) == [f"old-{n}" for n in range(2, OLD)]
    rejected = Page(get(port, "/review?show=rejected").text)
    assert [row[0] for row in rejected.rows] == ["old-0", "old-1"]
    code, _, errors = run("check", "--full", "--lake", str(tmp_path / "lake"))  # type: ignore[operator]
    assert code == 0, errors
    code, _, _ = run("emit", "--lake", str(tmp_path / "lake"))  # type: ignore[operator]
    assert code == 0
    write(tmp_path / "log", [(-9 * DAY_S, "old-0", "orders", 0, 71)])
    cycle(tmp_path)
    assert groups(tmp_path) == {"old-0", "old-1", "billing"}
    assert planned(tmp_path) == ["old-0"]
    assert [row[0] for row in Page(get(port, "/review?show=rejected").text).rows] == ["old-1"]


def test_the_commands_make_the_same_decisions(bench: Workbench, tmp_path: Path, run: object) -> None:
    lake = ["--lake", str(tmp_path / "lake")]
    _, out, _ = run("tombstones", "--outcome", "planned", "--format", "json", *lake)  # type: ignore[operator]
    lines = [line for line in out.splitlines() if json.loads(line)["topic"] is not None]
    (tmp_path / "kept.jsonl").write_text("\n".join(lines[:1]))
    (tmp_path / "approved.jsonl").write_text("\n".join(lines[1:3]))
    code, _, errors = run("reject", str(tmp_path / "kept.jsonl"), *lake)  # type: ignore[operator]
    assert (code, "1 tombstones were withdrawn" in errors) == (0, True)
    code, out, _ = run("emit", "--only", str(tmp_path / "approved.jsonl"), *lake, "--format", "json")  # type: ignore[operator]
    assert code == 0
    assert dict(json.loads(out)["counts"])["emitted"] == 2
    assert planned(tmp_path) == ["old-3", "old-4", "old-5"]
    code, _, errors = run("reject", str(tmp_path / "kept.jsonl"), *lake)  # type: ignore[operator]
    assert (code, "not planned any more" in errors) == (2, True)
    (tmp_path / "kept.jsonl").write_text('{"group_id": 1}\n')
    code, _, errors = run("reject", str(tmp_path / "kept.jsonl"), *lake)  # type: ignore[operator]
    assert (code, "line 1: not a row" in errors) == (2, True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"decision": "approve"}, "Select at least one"),
        ({"decision": "explode", "tombstone": '["old-0", "orders", 0, 0]'}, "Invalid decision"),
        ({"decision": "approve", "tombstone": "x"}, "invalid tombstone"),
        ({"decision": "approve", "tombstone": "[1, 2]"}, "invalid tombstone"),
        ({"decision": "approve", "tombstone": '[null, "t", 0, 0]'}, "require the permission"),
        ({"decision": "approve", "tombstone": '{"a": 1}'}, "invalid tombstone"),
    ],
)
def test_invalid_decisions_are_explained(port: int, fields: dict[str, object], message: str) -> None:
    answer = post(port, "/review", {"form_token": form_token(port), **fields})
    assert (answer.status, message in Page(answer.text).text) == (400, True)


def test_groups_are_filtered_by_pattern_rule_and_permission(bench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "acl.toml").write_text(
        '[[acl]]\nprincipal="*"\ngroup="old-[012]"\npermissions=["read"]\n'
        '[[acl]]\nprincipal="*"\ngroup="old-1"\npermissions=["admin"]\n'
    )
    visitors = gate(allows_changes=True, acl=str(tmp_path / "acl.toml"))
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
        assert Page(get(port, "/review?rule=cleanup").text).rows == []
        fields = {"decision": "approve", "form_token": visitors._form_token, "tombstone": '["old-0","orders",0,0]'}
        assert post(port, "/review", fields).status == 400
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
