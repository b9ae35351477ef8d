"""How a process that has worked with Arrow and Delta ends."""

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn


def leave(exit_code: int) -> NoReturn:
    """End the process, after what others have asked to be done at its end, without taking the interpreter apart.

    That is where threads of Arrow and delta-rs that still run abort the process, once in some hundred times and after
    all was done: "terminate called without an active exception" (delta-io/delta-rs, issue 2184).
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing ends its processes, and there is no other name
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # nobody reads it any more; what must be written was flushed where it was written
            stream.flush()
    os._exit(exit_code)
