"""The command `offsetlake`: how its process starts and ends. The commands are in `offsetlake.cli.commands`.

This module imports little, so that Ctrl-C is handled before Arrow, Delta and typer are loaded.
"""

import errno
import io
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from offsetlake.errors import OffsetlakeError
from offsetlake.util.escaping import visible
from offsetlake.util.process_exit import leave, open_standard_streams

EXIT_OF_A_BUG = 70  # EX_SOFTWARE
EXIT_OF_CTRL_C = 128 + signal.SIGINT
EXIT_OF_CLOSED_PIPE = 128 + signal.SIGPIPE


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line, that of the process where none is given, and leave the process with its exit code."""
    signal.signal(signal.SIGINT, _leave_at_once)
    open_standard_streams()
    exit_code = run(arguments)
    signal.signal(signal.SIGINT, _leave_at_once)
    leave(exit_code)


def run(arguments: Sequence[str] | None) -> int:
    """Run a command line, that of the process where none is given; return its exit code. From then on Ctrl-C is its."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what is not escaped before, such as help
    from typer.exceptions import TyperException  # noqa: PLC0415 - see the module's docstring

    from offsetlake.cli.app import app  # noqa: PLC0415

    signal.signal(signal.SIGINT, _interrupt)
    try:
        given = sys.argv[1:] if arguments is None else [*arguments]
        result: Any = app(args=given, prog_name="offsetlake", standalone_mode=False, obj=given)
    except (OffsetlakeError, TyperException) as error:
        message = error.format_message() if isinstance(error, TyperException) else str(error)
        _write_error(f"error: {' '.join(message.split())}")
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_OF_CTRL_C
    except SystemExit as left:
        return _exit_code(left)
    except Exception:  # noqa: BLE001 - the outermost frame; nothing is hidden
        if _interrupted.is_set():  # the interrupt was lost in a library, or what it has interrupted failed by it
            return EXIT_OF_CTRL_C
        for line in traceback.format_exc().rstrip("\n").split("\n"):
            _write_error(line)
        return EXIT_OF_A_BUG
    return result if isinstance(result, int) else 0


def _exit_code(left: SystemExit) -> int:
    """Return the exit code of typer's own exits, of which one is for an output that nobody reads any more."""
    if isinstance(left.__context__, OSError) and left.__context__.errno == errno.EPIPE:
        return EXIT_OF_CLOSED_PIPE
    return left.code if isinstance(left.code, int) else 1


_interrupted = threading.Event()


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    _interrupted.set()
    logging.disable()  # py4j would log the trace of the call to the JVM that is given up
    raise KeyboardInterrupt


def _leave_at_once(_signal: int, _frame: object) -> NoReturn:
    os._exit(EXIT_OF_CTRL_C)


def _write_error(line: str) -> None:
    """Write a line to standard error; nothing in it, such as a name from an argument, controls the terminal."""
    try:
        print(visible(line), file=sys.stderr, flush=True)  # noqa: T201
    except BrokenPipeError:  # nobody reads it; the exit code says that the command failed
        sys.stderr = io.StringIO()
