"""A substitute for `offsetlake`: the real command line, which can be paused.

If WITHOUT_SPARK is set, tasks run in this process. If HOLD names a file, a compaction creates it before its first
commit, and then waits until it is killed.
"""

import os
import signal
from pathlib import Path
from typing import Any, NoReturn

from offsetlake.cli import main
from offsetlake.pipeline import runner
from offsetlake.pipeline.compact import job as compact
from support.e2e.in_process import NoSpark


def hold(*_arguments: Any) -> NoReturn:
    Path(os.environ["HOLD"]).touch()
    while True:
        signal.pause()


if "WITHOUT_SPARK" in os.environ:
    runner.LazySession = NoSpark  # type: ignore[assignment,misc]
if "HOLD" in os.environ:
    compact.commit = hold  # type: ignore[assignment]
main.main()
