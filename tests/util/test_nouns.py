"""Numbers of things in messages."""

import re
from pathlib import Path

import pytest

import offsetlake
from offsetlake.util.amounts import counted, noun

_NUMBER_AND_PLURAL = re.compile(r"\{[^{}]*(?::,|len\(|num_rows)[^{}]*\} (?:[a-z]+ )?[a-z]+s (?:are|were|have)\b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (counted(1, "change"), "1 change"),
        (counted(0, "change"), "0 changes"),
        (counted(12_000, "group is", "groups are"), "12,000 groups are"),
        (counted(1, "group is", "groups are"), "1 group is"),
        (noun(2, "was", "were"), "were"),
    ],
)
def test_a_noun_agrees_with_its_number(text: str, expected: str) -> None:
    assert text == expected


def test_no_message_has_a_number_before_a_fixed_plural() -> None:
    folder = Path(offsetlake.__file__).parent
    found = [
        f"{path.relative_to(folder)}: {line.strip()}"
        for path in folder.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if _NUMBER_AND_PLURAL.search(line) and "raise wire" not in line
    ]
    assert found == []
