"""In the place of `offsetlake`: the command line itself, held on request, as it is otherwise.

WITHOUT_SPARK names that the tasks are to run in the process itself. Where HOLD names a file, a compaction writes it
before its first commit, and then waits for ever.
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
