"""Patterns of names: those that a shell takes are taken, and a bracket that is not closed is told."""

from fnmatch import fnmatchcase

import pytest

from offsetlake.rules.patterns import pattern_problem


@pytest.mark.parametrize(
    ("pattern", "name"), [("[[]x", "[x"), ("[]a]", "]"), ("[!]a]", "b"), ("[a[]x", "[x"), ("a]", "a]"), ("[\n]", "\n")]
)
def test_a_pattern_that_fits_has_no_problem(pattern: str, name: str) -> None:
    assert fnmatchcase(name, pattern)
    assert pattern_problem(pattern) is None


@pytest.mark.parametrize("pattern", ["a[b", "[", "[]", "[!]", "[!", "[[]x[", "[a]["])
def test_a_bracket_that_is_not_closed_is_told(pattern: str) -> None:
    assert pattern_problem(pattern) == f"the pattern {pattern!r} has a [ without its ]"
