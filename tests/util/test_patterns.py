"""Valid patterns are accepted, and patterns with an unclosed bracket are not."""

from fnmatch import fnmatchcase

import pytest

from offsetlake.util.patterns import pattern_problem


@pytest.mark.parametrize(
    ("pattern", "name"), [("[[]x", "[x"), ("[]a]", "]"), ("[!]a]", "b"), ("[a[]x", "[x"), ("a]", "a]"), ("[\n]", "\n")]
)
def test_pattern_that_matches_a_name_is_valid(pattern: str, name: str) -> None:
    assert fnmatchcase(name, pattern)
    assert pattern_problem(pattern) is None


@pytest.mark.parametrize("pattern", ["a[b", "[", "[]", "[!]", "[!", "[[]x[", "[a]["])
def test_unclosed_bracket_is_invalid(pattern: str) -> None:
    assert pattern_problem(pattern) == f"the pattern {pattern!r} has a [ without a closing ]"
