"""Patterns of names as a shell has them, `*` `?` `[abc]`: what is wrong with one that a person wrote."""

import re
from fnmatch import translate

_CLOSED = re.compile(r"\[!?+\]?+[^\]]*\]")  # as fnmatch has it: a ] that comes first is one of the characters


def pattern_problem(pattern: object) -> str | None:
    """Say what is wrong with a pattern; None where nothing is."""
    if not isinstance(pattern, str) or not pattern:
        return "a pattern is a text in quotes, such as 'billing-*'"
    if "[" in _CLOSED.sub("", pattern):
        return f"the pattern {pattern!r} has a [ without its ]"
    if "(?!)" in translate(pattern):
        return f"the pattern {pattern!r} fits nothing: a range goes from the smaller on"
    return None
