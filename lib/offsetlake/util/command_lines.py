"""Command lines that are shown to people, quoted so that they can be pasted into a shell."""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path


def command_line(*words: str) -> str:
    """Return the command line of a command of offsetlake, whose words follow the name of the program.

    The program is `offsetlake`, or the relative path of the running script if it is not on the PATH of the shell.
    """
    return shlex.join([_program(), *words])


def with_options(words: Sequence[str], *options: str) -> list[str]:
    """Return the words of a command with more options, which stand before `--` if names follow it."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], *options, *words[end:]]


def _program() -> str:
    script = Path(sys.argv[0])
    if script.name != "offsetlake" or shutil.which("offsetlake"):
        return "offsetlake"
    return os.path.relpath(script)
