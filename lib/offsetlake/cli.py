"""The command `offsetlake`: what is common to all its commands, which are in `offsetlake.commands`."""

import logging
import signal
import threading
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, NoReturn

import typer
from typer.exceptions import TyperException

# Each adds its commands to `app`, and the help has them in this order.
# isort: off
from offsetlake.commands import jobs  # noqa: F401
from offsetlake.commands import check  # noqa: F401
from offsetlake.commands import repair  # noqa: F401
from offsetlake.commands import serve  # noqa: F401
from offsetlake.commands import credentials  # noqa: F401
from offsetlake.commands import questions  # noqa: F401
from offsetlake.commands import lag  # noqa: F401
from offsetlake.commands import audits  # noqa: F401
from offsetlake.commands import report  # noqa: F401
from offsetlake.commands import reset  # noqa: F401
from offsetlake.commands import by_hand  # noqa: F401
from offsetlake.commands import snapshot  # noqa: F401

# isort: on
from offsetlake.commands.options import app
from offsetlake.errors import OffsetlakeError
from offsetlake.leaving import leave

EXIT_OF_A_BUG = 70  # EX_SOFTWARE
EXIT_OF_CTRL_C = 130


@app.callback(invoke_without_command=True)
def offsetlake(
    context: typer.Context,
    wants_version: Annotated[bool, typer.Option("--version", help="Tell the version and leave.")] = False,
) -> None:
    """Consumer offsets as a lakehouse: Kafka's offset commit log in Delta tables, and the questions asked of it."""
    if wants_version:
        typer.echo(f"offsetlake {_version()}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line, that of the process where none is given, and leave the process with its exit code."""
    leave(run(arguments))


_interrupted = threading.Event()


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    _interrupted.set()
    logging.disable()  # py4j would log the trace of the call to the JVM that is given up
    raise KeyboardInterrupt


def run(arguments: Sequence[str] | None) -> int:
    """Run a command line, that of the process where none is given; gives its exit code. From then on Ctrl-C is its."""
    signal.signal(signal.SIGINT, _interrupt)
    try:
        result: Any = app(args=arguments, prog_name="offsetlake", standalone_mode=False)
    except (OffsetlakeError, TyperException) as error:
        message = error.format_message() if isinstance(error, TyperException) else str(error)
        typer.echo(f"error: {' '.join(message.split())}", err=True)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_OF_CTRL_C
    except SystemExit as left:  # typer's own, where nobody reads the answer any more
        return left.code if isinstance(left.code, int) else 1
    except Exception:  # noqa: BLE001 - the outermost frame; nothing is hidden
        if _interrupted.is_set():  # the interrupt was lost in a library, or what it has interrupted failed by it
            return EXIT_OF_CTRL_C
        traceback.print_exc()
        return EXIT_OF_A_BUG
    return result if isinstance(result, int) else 0


def _version() -> str:
    try:
        return version("offsetlake")
    except PackageNotFoundError:
        return "of a checkout"


if __name__ == "__main__":
    main()
