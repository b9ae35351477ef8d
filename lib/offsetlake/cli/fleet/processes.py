"""Runs a function for each of many lakes, each in a process of its own, a few at a time.

The processes are forked from this one, which has loaded the program, so that none of them loads it again. Whatever
happens to one of them, or to the memory it uses, the others are not affected. delta-rs does not work in a process that
is forked after its first use: this process must not have opened a table.
"""

import json
import multiprocessing
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from offsetlake.cli.output import write_note
from offsetlake.cli.progress import Progress
from offsetlake.errors import NotInLake, OffsetlakeError
from offsetlake.lake.data_files import naming_damage

if TYPE_CHECKING:
    from types import FrameType

MAX_PROCESSES = 8
"""The maximum number of processes at a time, if there are as many cores: each may need 1 GB of memory."""

_DEFECT = 70  # EX_SOFTWARE, as in `offsetlake.cli.main`


class Failure(NamedTuple):
    """Why a lake has not been answered for: a message, its exit code, and whether the lake lacks what was named."""

    message: str
    exit_code: int
    is_unknown: bool = False


@dataclass(frozen=True)
class ProcessOutcome:
    """What the process of one lake has left.

    | Field   | Description |
    |---------|-------------|
    | name    | The name of the lake. |
    | folder  | The folder for what the function returns: it must exist as long as that is needed. |
    | failure | The error that ended the function or its process; None if the function returned. |
    | notes   | The lines that it wrote to standard error and standard output. |
    """

    name: str
    folder: Path = field(repr=False)
    failure: Failure | None
    notes: Sequence[str]


Work = Callable[[str, Path], None]
"""Answers for the lake of a name, in a process of its own, and writes the answer to files in the folder."""


def for_each(
    names: Sequence[str], work: Work, folder: Path, advance: Callable[[int, int], None]
) -> list[ProcessOutcome]:
    """Run `work` for each lake; return the outcomes in the order of `names`.

    Args:
        names: The names of the lakes.
        work: The function.
        folder: A folder of the caller's, in which each lake gets one.
        advance: Called with the number of lakes that are finished, and of all.

    """
    processes = multiprocessing.get_context("fork")
    folders = {name: folder / str(number) for number, name in enumerate(names)}
    left, running, exit_codes = [*names], list[ForkProcess](), dict[str, int]()
    limit = min(len(os.sched_getaffinity(0)), MAX_PROCESSES)
    try:
        while left or running:
            while left and len(running) < limit:
                name = left.pop(0)
                process = processes.Process(target=_run, args=(work, name, folders[name]), name=name)
                with _interrupted_later():
                    process.start()
                    running.append(process)
            ended = wait([process.sentinel for process in running])
            for process in [process for process in running if process.sentinel in ended]:
                running.remove(process)
                process.join()
                exit_codes[process.name] = process.exitcode or 0
                advance(len(exit_codes), len(names))
    finally:
        for process in running:
            process.kill()  # it only reads the lake
            process.join()
    return [_outcome(name, folders[name], exit_codes[name]) for name in names]


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block: what its handler raises during a fork is ignored by Python."""
    arrived: list[tuple[int, FrameType | None]] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: arrived.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if arrived and callable(handler):
        handler(*arrived[0])


def _run(work: Work, name: str, folder: Path) -> None:
    """Run the function in this new process, and write its failure, if any, into the folder."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    folder.mkdir()
    tempfile.tempdir = str(folder)  # the caller removes the folder also if this process is killed
    Progress.silent = True
    with _output_to(folder / "notes"):
        failure = None
        try:
            with naming_damage():
                work(name, folder)
        except OffsetlakeError as error:
            for note in getattr(error, "__notes__", ()):
                write_note(note)
            failure = Failure(str(error), error.exit_code, isinstance(error, NotInLake))
        except Exception as error:  # noqa: BLE001 - the outermost frame of the process: the traceback is written
            traceback.print_exc()
            failure = Failure(f"a defect of the program: {type(error).__name__}: {error}", _DEFECT)
        (folder / "failure").write_text(json.dumps(failure), encoding="utf-8")


@contextmanager
def _output_to(file: Path) -> Iterator[None]:
    """Redirect both output streams of this process to a file."""
    with file.open("w", encoding="utf-8", errors="backslashreplace", buffering=1) as out:
        for descriptor in (1, 2):
            os.dup2(out.fileno(), descriptor)
        sys.stdout = sys.stderr = out
        yield


def _outcome(name: str, folder: Path, exit_code: int) -> ProcessOutcome:
    notes_file, failure_file = folder / "notes", folder / "failure"
    notes = notes_file.read_text(encoding="utf-8").splitlines() if notes_file.exists() else []
    if exit_code or not failure_file.exists():
        return ProcessOutcome(name, folder, _death(exit_code, notes), notes)
    stored = json.loads(failure_file.read_text(encoding="utf-8"))
    return ProcessOutcome(name, folder, Failure(*stored) if stored else None, notes)


def _death(exit_code: int, notes: list[str]) -> Failure:
    """Return why a process ended early; removes the error that it wrote itself from the notes."""
    if exit_code < 0:
        killer = signal.Signals(-exit_code).name
        return Failure(f"its process was ended by the signal {killer}, for example because memory is short", 1)
    if notes and notes[-1].startswith("error: "):
        return Failure(notes.pop().removeprefix("error: "), exit_code)
    return Failure(f"its process ended with {exit_code}", exit_code or _DEFECT)
