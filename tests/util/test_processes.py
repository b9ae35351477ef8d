"""How a process ends: what was said and is to be tidied up is, and nothing is taken apart; and its exit codes."""

import re
import subprocess
import sys
from pathlib import Path

from offsetlake.cli import main
from offsetlake.errors import OffsetlakeError

PROGRAM = """
import atexit, os, sys
from offsetlake.util.processes import leave

class Aborts:
    def __del__(self):
        os.abort()

taken_apart = Aborts()
atexit.register(lambda: sys.stdout.write("tidied up"))
sys.stdout.write("said, ")
leave(3)
"""


def test_leave_flushes_streams_and_runs_exit_handlers() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "said, tidied up", "")


def test_the_table_of_exit_codes_has_every_exit_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "output.md").read_text(encoding="utf-8")
    documented = [int(code) for code in re.findall(r"^\| (\d+) \|", text.split("## Exit codes")[1], re.MULTILINE)]
    of_errors = {error.exit_code for error in all_errors(OffsetlakeError) if error.__module__ == "offsetlake.errors"}
    assert documented == sorted({0, main.EXIT_INTERNAL_ERROR, main.EXIT_INTERRUPTED, main.EXIT_CLOSED_PIPE} | of_errors)


def all_errors(error: type[OffsetlakeError]) -> list[type[OffsetlakeError]]:
    return [error, *(each for below in error.__subclasses__() for each in all_errors(below))]
