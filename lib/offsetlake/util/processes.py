"""The processes of the program: missing standard streams, the niceness of children, and an end that cannot crash."""

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn

CHILD_NICENESS = 10
"""The nice value of a child process that runs while its parent answers requests."""


def open_standard_streams() -> None:
    """Open the file descriptors 0, 1 and 2 on /dev/null if the process was started without them, as with `>&-`.

    Otherwise, the next file that is opened, such as a segment of the log, gets the descriptor, and with it everything
    that libraries and child processes write to the stream.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # returns the lowest free descriptor
    for name, descriptor, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def leave(exit_code: int) -> NoReturn:
    """Run the exit handlers and end the process without finalizing the interpreter.

    During finalization, running threads of Arrow and delta-rs abort about one process in several hundred with
    "terminate called without an active exception" (delta-io/delta-rs, issue 2184).
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - like multiprocessing; there is no public API
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # the reader is gone; required output was flushed earlier
            stream.flush()
    os._exit(exit_code)
