"""The lists of Kafka's coordinator tests and tests of share partitions name tests that exist."""

import re
from pathlib import Path

import pytest

from support.coordinator.share_cases import cases
from support.documents import ROOT

COORDINATOR = ROOT / "tests" / "coordinator"
SHARE_TESTS = COORDINATOR / "share_partition" / "README.md"
SHARE_PARTITION_CASES = 245
"""The number of cases of SharePartitionTest of Kafka 4.2.0."""


@pytest.mark.parametrize("page", [COORDINATOR / "README.md", SHARE_TESTS], ids=["coordinator", "share partitions"])
def test_the_list_names_existing_tests(page: Path) -> None:
    sections = page.read_text(encoding="utf-8").split("\n## ")[1:]
    assert sections
    for section in sections:
        folder = re.search(r"The files are in `(tests/\w+/\w+)`", section)
        assert folder, section[:100]
        named = re.findall(r"`(\w+)::(?:(Test\w+)::)?(\w+)`", section)
        assert named
        for file, group, name in named:
            (path,) = (ROOT / folder[1]).rglob(f"test_{file}.py")
            source = path.read_text(encoding="utf-8")
            assert re.search(rf"^( *)def test_{name}\(", source, re.MULTILINE), f"{file}::{name}"
            assert not group or f"class {group}:" in source


def test_every_case_of_share_partitions_is_run_or_listed() -> None:
    text = SHARE_TESTS.read_text(encoding="utf-8")
    tables = [table for table in text.split("\n\n") if table.startswith("| Test of SharePartitionTest ")]
    listed = [name for table in tables for name in re.findall(r"^\| (test\w+) ", table, re.MULTILINE)]
    assert not {*listed} & {*cases()}
    assert len({*listed}) == len(listed)
    assert len(listed) + len(cases()) == SHARE_PARTITION_CASES
    assert f"{len(cases())} are in" in text
    assert f"The other {len(listed)} cases" in text
