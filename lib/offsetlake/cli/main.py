"""Entry point of the command `offsetlake`. The commands are in `offsetlake.cli.commands`.

This module imports little, so that Ctrl-C is handled before Arrow, Delta and Typer are loaded.
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

from offsetlake.errors import NotInLake, OffsetlakeError
from offsetlake.util.escaping import visible
from offsetlake.util.memory_limit import choose_allocators
from offsetlake.util.processes import leave, open_standard_streams
from offsetlake.util.unused_libraries import load_arrow

EXIT_INTERNAL_ERROR = 70  # EX_SOFTWARE
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_CLOSED_PIPE = 128 + signal.SIGPIPE


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line, by default that of the process, and exit the process with its exit code."""
    signal.signal(signal.SIGINT, _leave_at_once)
    open_standard_streams()
    exit_code = run(arguments)
    signal.signal(signal.SIGINT, _leave_at_once)
    leave(exit_code)


def run(arguments: Sequence[str] | None) -> int:
    """Run a command line, by default that of the process, and return its exit code. Installs a handler for Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for text that is not escaped, such as help
    choose_allocators()
    load_arrow()
    from typer.exceptions import TyperException  # noqa: PLC0415 - imported late, as the module docstring explains

    from offsetlake.cli.app import command  # noqa: PLC0415
    from offsetlake.lake.data_files import naming_damage  # noqa: PLC0415

    signal.signal(signal.SIGINT, _interrupt)
    try:
        words = sys.argv[1:] if arguments is None else [*arguments]
        with naming_damage():
            result: Any = command(args=words, prog_name="offsetlake", standalone_mode=False, obj=words)
    except (OffsetlakeError, TyperException) as error:
        for note in getattr(error, "__notes__", ()):
            _write_error(note)
        message = error.format_message() if isinstance(error, TyperException) else str(error)
        message += error.suggest() if isinstance(error, NotInLake) else ""
        _write_error(f"error: {' '.join(message.split())}")
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except SystemExit as exit_request:
        return _exit_code(exit_request)
    except Exception:  # noqa: BLE001 - the outermost frame: the traceback is written
        if _interrupted.is_set():  # a library swallowed KeyboardInterrupt or failed because of it
            return EXIT_INTERRUPTED
        for line in traceback.format_exc().rstrip("\n").split("\n"):
            _write_error(line)
        return EXIT_INTERNAL_ERROR
    return result if isinstance(result, int) else 0


def _exit_code(exit_request: SystemExit) -> int:
    """Return the exit code of an exit that Typer requested; it also does so if the output pipe is closed."""
    if isinstance(exit_request.__context__, OSError) and exit_request.__context__.errno == errno.EPIPE:
        return EXIT_CLOSED_PIPE
    return exit_request.code if isinstance(exit_request.code, int) else 1


_interrupted = threading.Event()


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    _interrupted.set()
    logging.disable()  # py4j would log the traceback of the interrupted call to the JVM
    raise KeyboardInterrupt


def _leave_at_once(_signal: int, _frame: object) -> NoReturn:
    os._exit(EXIT_INTERRUPTED)


def _write_error(line: str) -> None:
    """Write a line to standard error, with control characters escaped."""
    try:
        print(visible(line), file=sys.stderr, flush=True)  # noqa: T201
    except BrokenPipeError:  # the exit code still reports the error
        sys.stderr = io.StringIO()
