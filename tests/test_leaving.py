"""How a process ends: what was said and is to be tidied up is, and nothing is taken apart."""

import subprocess
import sys

PROGRAM = """
import atexit, os, sys
from offsetlake.leaving import leave

class Aborts:
    def __del__(self):
        os.abort()

taken_apart = Aborts()
atexit.register(lambda: sys.stdout.write("tidied up"))
sys.stdout.write("said, ")
leave(3)
"""


def test_nothing_is_lost_and_nothing_taken_apart() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "said, tidied up", "")
