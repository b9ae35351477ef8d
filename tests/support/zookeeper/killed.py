"""A program that runs a command and kills itself just before one of its writes (`support.e2e.killing.Kill`).

python -m support.zookeeper.killed NUMBER FILE COMMAND ...

With the number 0, it completes, and writes the kinds of all its writes to the file.
"""

import os
import sys
from pathlib import Path

from offsetlake.cli import main
from offsetlake.log.writer import appender
from offsetlake.pipeline import runner
from support.e2e.in_process import NoSpark
from support.e2e.killing import Kill, LogFile

if __name__ == "__main__":
    runner.LazySession = NoSpark  # type: ignore[assignment,misc]
    appender.FileIO = LogFile  # type: ignore[misc]
    report = os.open(Path(sys.argv[2]), os.O_WRONLY | os.O_CREAT)
    Kill(int(sys.argv[1]), report)
    sys.exit(main.run(sys.argv[3:]))
