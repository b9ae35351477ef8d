"""A name or a pattern selects the same groups in questions and in changes, also a name with characters of patterns."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from offsetlake.kafka.batches.writer import record_batch
from offsetlake.kafka.commits.encoding import offset_commit_key, offset_commit_value
from offsetlake.kafka.placement import partition_for_group
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.log.writer.appending import appending
from offsetlake.util.times import to_ms
from support.command_line import Run
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle
from support.lakes import new_lake
from support.long_cases import long_cases

pytestmark = pytest.mark.slow

REAL_LOG = Path(__file__).parents[1] / "fixtures" / "broker-log"
NAMES = ("svc[1]", "svc1", "svc2", "zz*b", "zzxb", "what?", "whats", "back\\slash")
SELECTED = {
    "svc[1]": ["svc[1]"],
    "svc[12]": ["svc1", "svc2"],
    "svc[[]1]": ["svc[1]"],
    "zz*b": ["zz*b"],
    "zz[*]b": ["zz*b"],
    "zz*": ["zz*b", "zzxb"],
    "what?": ["what?"],
    "back\\slash": ["back\\slash"],
    "gone[1]": ["gone[1]"],  # a group without offsets
}
TIMESTAMP = to_ms("2026-11-22T06:00")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    shutil.copytree(REAL_LOG, folder / "log")
    (folder / "log" / "meta.properties").unlink()
    with appending(folder / "log", "test") as appender:
        for name in (*NAMES, "gone[1]", "gone1"):
            key = offset_commit_key(name.encode(), b"orders") + (0).to_bytes(4, "big")
            value = offset_commit_value(5, -1, b"", TIMESTAMP, -1, ZERO_UUID)
            tombstone = [(key, None)] if name == "gone[1]" else []
            appender.append(partition_for_group(name, 50), [record_batch(TIMESTAMP, [(key, value), *tombstone])])
        appender.sync()
    cycle(InProcess(), new_lake(folder / "lake"), folder / "log")
    return folder


@pytest.fixture
def at(original: Path, tmp_path: Path, run: Run) -> Path:
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    return tmp_path


def groups_of(run: Run, *arguments: str) -> list[str]:
    code, out, err = run(*arguments, "--format", "json")
    rows: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert code == 0 or not rows, err
    return sorted({row["group_id"] for row in rows})


@pytest.mark.usefixtures("at")
@pytest.mark.parametrize("text", [*[*SELECTED][:2], *long_cases([*SELECTED][2:])])
def test_questions_select_what_changes_select(run: Run, text: str) -> None:
    expected = SELECTED[text]
    for question in (
        ("groups", "--group", text), ("groups", "--as-of", "now", "--group", text),
        ("expire", "--what-if", "--group", text), ("cleanup", text, "--log", "log"),
    ):  # fmt: skip
        assert groups_of(run, *question) == expected, question
    assert groups_of(run, "audit", "commit_rate", "--group", text) == expected
    restored = groups_of(run, "restore", text, "--as-of", "now", "--log", "log")
    assert restored == [name for name in expected if name != "gone[1]"]


@pytest.mark.long
@pytest.mark.usefixtures("at")
def test_import_selects_the_same_groups_of_a_file(run: Run) -> None:
    assert run("snapshot", "all.jsonl")[0] == 0
    for text, expected in SELECTED.items():
        found = groups_of(run, "import", "all.jsonl", text, "--log", "log")
        assert found == (["gone1"] if text == "gone[1]" else expected)


@pytest.mark.usefixtures("at")
def test_import_refuses_a_row_alone_and_names_new_groups(run: Run) -> None:
    lines = [
        "svc1,orders,0,7", "svc2,orders,0,-1", "new,orders,0,3", ",orders,0,3", "svc1,bad name,0,3", "svc1,..,0,3",
        f"svc1,{'t' * 250},0,3",
    ]  # fmt: skip
    Path("o.csv").write_text("\ufeff" + "\r\n".join(lines), encoding="utf-8")
    code, out, err = run("import", "o.csv", "--log", "log", "--format", "json")
    assert code == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    outcomes = {(row["group_id"], row["topic"][:8]): (row["outcome"], row["reason"] or "") for row in rows}
    assert [outcomes[name, "orders"][0] for name in ("svc1", "new")] == ["planned", "planned"]
    assert "does not exist yet" not in outcomes["svc1", "orders"][1]
    assert outcomes["new", "orders"][1].startswith("the group does not exist yet: it is new")
    assert outcomes["svc2", "orders"] == ("refused", "the offset -1 is negative: no record has it")
    assert outcomes["", "orders"] == ("refused", "the name of the group is empty")
    for topic in ("bad name", "..", "tttttttt"):
        outcome, reason = outcomes["svc1", topic]
        assert (outcome, "no topic can have this name" in reason) == ("refused", True)
    code, out, err = run("import", "o.csv", "--log", "log", "--execute")
    assert code != 0
    assert "2 changes were made" in err


@pytest.mark.usefixtures("at")
def test_import_reads_what_offsets_prints_with_columns_in_another_order(run: Run) -> None:
    _, out, _ = run("offsets", "--group", "svc1", "--format", "csv")
    header, line = (text.split(",") for text in out.splitlines())
    columns = dict(zip(header, line, strict=True)) | {"committed_offset": "7"}
    order = sorted(columns, reverse=True)
    Path("o.csv").write_text(f"{';'.join(order)}\n{';'.join(columns[name] for name in order)}\n", encoding="utf-8")
    code, out, err = run("import", "o.csv", "--log", "log", "--format", "json")
    (row,) = (json.loads(text) for text in out.splitlines())
    assert (code, row["group_id"], row["committed_offset"], row["outcome"]) == (0, "svc1", 7, "planned"), err
    assert "Ignored columns: value_version, topic_id, " in err
    Path("o.csv").write_text("Group;Topic;Partition;Note\nsvc1;orders;0;7\n", encoding="utf-8")
    code, _, err = run("import", "o.csv", "--log", "log")
    assert code == 2
    assert "no column offset; unknown column Note: expected group, topic, partition, offset, found Group, Topic" in err
