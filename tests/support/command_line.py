"""The type of the fixture `run`, and the standard error of a command without progress."""

import re
from collections.abc import Callable

Run = Callable[..., tuple[int, str, str]]
"""A command's arguments in; exit code, standard output and standard error out."""


def without_progress(errors: str) -> str:
    """Return what a process wrote to standard error, without the lines of progress of slow steps."""
    return re.sub(r"^ *\d+\.\d s  .*\n", "", errors, flags=re.MULTILINE)
