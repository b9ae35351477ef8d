"""docs/python-api.md: its examples run as they are written, and its tables list what the code has."""

import doctest
import inspect
import re
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import offsetlake
from offsetlake.api.open_lake import OpenLake
from offsetlake.errors import LakeUnusable
from offsetlake.lake.definitions import definition
from offsetlake.lake.lake import Lake
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.pipeline.compact.snapshot import Snapshot
from offsetlake.pipeline.ingest.log_ends import record

ROOT = Path(__file__).parents[2]
T = 1_795_239_540_000  # 2026-11-21T05:39:00Z, after the newest record
ERRORS = ["LakeUnusable", "TableChanged", "BadRequest", "NotInLake", "NotRead", "NotEnoughMemory"]
TEXT = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")


@pytest.fixture
def repository(broker_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the repository after `make run`, and beside it `prod`, the lake of a live cluster."""
    prod = Lake(shutil.copytree(str(broker_lake.location), tmp_path / "prod"))
    record(prod, 1, [["orders", number, 0, 500, T] for number in range(6)])
    (tmp_path / "lake").symlink_to(broker_lake.location.path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("repository")
def test_examples() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    text = "\n".join(blocks).replace("/lakes/prod", "prod")
    test = doctest.DocTestParser().get_doctest(text, {}, "python-api.md", None, 0)
    assert len(test.examples) == TEXT.count(">>> ") > 0
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    assert runner.run(test, out=said.append).failed == 0, "".join(said)


def listed(after: str) -> list[str]:
    """The names in the first column of the first table behind a text, each in backquotes."""
    table = TEXT.partition(after)[2].partition("\n|---")[2].split("\n\n")[0]
    return [name for line in table.splitlines()[1:] for name in re.findall(r"`([^`]+)`", line.split("|")[1])]


def test_every_argument_and_result_is_on_the_page() -> None:
    def arguments(function: Any) -> list[str]:
        return [name for name in inspect.signature(function).parameters if name != "self"]

    for signature in listed("| Method |"):
        name, _, given = signature.rstrip(")").partition("(")
        assert [each for each in given.split(", ") if each and each != "*"] == arguments(getattr(OpenLake, name)), name
        assert f"\n### {name}\n" in TEXT
    assert listed("| Error | Raised if |") == ERRORS
    assert listed("### Arguments") == arguments(offsetlake.open_snapshot)
    assert listed("| Field of `KafkaConnection` |") == [field.name for field in fields(KafkaConnection)]
    assert listed("### Result") == [field.name for field in fields(Snapshot)]
    assert listed("`Snapshot.offsets(") == arguments(Snapshot.offsets)
    assert listed("The columns of `offsets`:") == list(definition("offsets").column_names)
    assert listed("## register_views") == arguments(offsetlake.register_views)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: offsetlake.open_snapshot("lake", "log", group="g"),
            "unexpected keyword argument 'group'; valid argumen",
        ),
        (lambda: offsetlake.open_snapshot("lake"), "missing a required argument: 'log'; valid arguments: lake, log$"),
        (lambda: offsetlake.open_snapshot("lake", 5), "log is a str, a Path or a LogAddress, not int"),
        (lambda: offsetlake.register_views("lake"), "'lake'; valid arguments: spark, lake$"),
        (lambda: Snapshot.offsets("snapshot", topics="t"), "valid arguments: group_id, topic$"),
    ],
)
def test_a_wrong_argument_is_told_the_valid_ones(call: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        call()


@pytest.mark.usefixtures("repository")
def test_what_a_function_raises_passes(tmp_path: Path) -> None:
    with pytest.raises(LakeUnusable, match="no lake in"):
        offsetlake.open_snapshot(tmp_path / "nowhere", "log")
