"""A program that runs a command and kills itself at a request that writes to ZooKeeper.

python -m support.zookeeper.killed_export NUMBER COMMAND ...

An even number 2 n kills it before it sends the request n, counted from 0, an odd one 2 n + 1 after its response.
"""

import itertools
import os
import signal
import sys
from typing import Any

from offsetlake.cli import main
from offsetlake.pipeline import runner
from offsetlake.zookeeper import writing
from support.e2e.in_process import NoSpark

if __name__ == "__main__":
    runner.LazySession = NoSpark  # type: ignore[assignment,misc]
    send, at, numbers = writing._send, int(sys.argv[1]), itertools.count()

    def killing(*arguments: Any) -> Any:
        """Send a request, unless the process is to be killed before."""
        number = next(numbers)
        if 2 * number == at:
            os.kill(os.getpid(), signal.SIGKILL)
        result = send(*arguments)
        if 2 * number + 1 == at:
            result.get()
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    writing._send = killing
    sys.exit(main.run(sys.argv[2:]))
