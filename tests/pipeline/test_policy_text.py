"""A retention policy written as TOML is read back unchanged."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.errors import BadRequest
from offsetlake.pipeline.expire.policy_text import parse_policy, policy_text
from offsetlake.rules.policy import Override, RetentionPolicy
from offsetlake.util.patterns import pattern_problem
from offsetlake.util.times import MAX_TIMESTAMP_MS

DURATIONS = st.integers(0, MAX_TIMESTAMP_MS)
PATTERNS = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda text: not pattern_problem(text))
POLICIES = st.builds(
    RetentionPolicy,
    DURATIONS,
    st.lists(st.builds(Override, PATTERNS, PATTERNS, DURATIONS), max_size=4).map(tuple),
    st.none() | DURATIONS,
)


@given(POLICIES)
def test_a_policy_is_read_back_from_its_text(policy: RetentionPolicy) -> None:
    assert parse_policy(policy_text(policy), "policy") == policy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[retention", "policy: invalid TOML: "),
        ("", "policy: expected the table [retention]"),
        ('[retention]\ndefault = "3d"\n[serve]\nflush = "os"', "policy: expected the table [retention]"),
        ("[retention]\n[[retention.override]]", "policy, line 1: default: a duration must be a string"),
        ('[retention]\ndefault = "7 days"', "policy, line 2: default: Invalid duration '7 days'"),
        ('[retention]\ndefault = "7d"\n\n[[retention.override]]\ngroup = "a"', "policy, line 4: override: an override"),
    ],
)
def test_an_invalid_policy_is_refused_with_the_line(text: str, message: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(message)):
        parse_policy(text, "policy")
