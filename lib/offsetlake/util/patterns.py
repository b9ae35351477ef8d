"""Validates shell patterns of names: `*`, `?` and `[abc]`."""

import re
from fnmatch import translate

_CLOSED = re.compile(r"\[!?+\]?+[^\]]*\]")  # as in fnmatch, where a ] in the first place is one of the characters


def pattern_problem(pattern: object) -> str | None:
    """Return why a pattern is invalid; None if it is valid."""
    if not isinstance(pattern, str) or not pattern:
        return "a pattern must be a string that is not empty, such as 'billing-*'"
    if "[" in _CLOSED.sub("", pattern):
        return f"the pattern {pattern!r} has a [ without a closing ]"
    if "(?!)" in translate(pattern):
        return f"the pattern {pattern!r} matches nothing: a range must be in ascending order"
    return None
