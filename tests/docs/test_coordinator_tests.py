"""The lists of Kafka's coordinator tests and tests of share partitions name tests that exist."""

import re

import pytest

from support.coordinator.share_cases import cases
from support.documents import ROOT

SHARE_TESTS = "share-tests.md"
SHARE_PARTITION_CASES = 245
"""The number of cases of SharePartitionTest of Kafka 4.2.0."""


def text_of(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["coordinator-tests.md", SHARE_TESTS])
def test_the_list_names_existing_tests(page: str) -> None:
    sections = text_of(page).split("\n## ")[1:]
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
    text = text_of(SHARE_TESTS)
    tables = [table for table in text.split("\n\n") if table.startswith("| Test of SharePartitionTest ")]
    listed = [name for table in tables for name in re.findall(r"^\| (test\w+) ", table, re.MULTILINE)]
    assert not {*listed} & {*cases()}
    assert len({*listed}) == len(listed)
    assert len(listed) + len(cases()) == SHARE_PARTITION_CASES
    assert f"{len(cases())} are in" in text
    assert f"The other {len(listed)} cases" in text
