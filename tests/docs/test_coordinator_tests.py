"""The list of Kafka's coordinator tests names tests that exist."""

import re

from support.documents import ROOT

SECTIONS = (ROOT / "docs" / "coordinator-tests.md").read_text(encoding="utf-8").split("\n## ")[1:]


def test_the_list_names_existing_tests() -> None:
    assert SECTIONS
    for section in SECTIONS:
        folder = re.search(r"The files are in `(tests/coordinator/\w+)`", section)
        assert folder, section[:100]
        named = re.findall(r"`(\w+)::(?:(Test\w+)::)?(\w+)`", section)
        assert named
        for file, group, name in named:
            source = (ROOT / folder[1] / f"test_{file}.py").read_text(encoding="utf-8")
            assert re.search(rf"^( *)def test_{name}\(", source, re.MULTILINE), f"{file}::{name}"
            assert not group or f"class {group}:" in source
