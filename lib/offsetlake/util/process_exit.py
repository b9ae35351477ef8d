"""How a process gets its standard streams, and how one that has worked with Arrow and Delta ends."""

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn


def open_standard_streams() -> None:
    """Open descriptors 0, 1 and 2 to /dev/null where the process was started without them, as with `>&-`.

    Python has None for such a stream, and the next file that is opened, perhaps a segment of the log, would get the
    descriptor, and with it all that libraries and child processes write there.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free
    for name, descriptor, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


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
