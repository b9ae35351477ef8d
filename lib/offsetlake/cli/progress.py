"""Progress of a command on standard error."""

import sys
import threading
import time
from types import TracebackType
from typing import ClassVar, Self

from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from offsetlake.util.amounts import progress_text
from offsetlake.util.escaping import visible

FIRST_LINE_SECONDS = 2.0  # delay of the first progress line if standard error is not a terminal
LINE_INTERVAL_SECONDS = 10.0


class Progress:
    """Shows on standard error which step is running and for how long; on a terminal as a spinner, else as lines."""

    silent: ClassVar[bool] = False
    """Whether nothing is shown: in a process whose caller shows the progress."""

    def __init__(self, *, quiet: bool = False) -> None:
        """Start measuring the time.

        Args:
            quiet: For queries: steps disappear from the terminal at the end, and only slow steps are written as lines.

        """
        console = Console(stderr=True, highlight=False)
        columns = (
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        )
        self._bars = Bars(*columns, console=console, transient=quiet) if console.is_interactive else None
        self._quiet = quiet
        self._current: TaskID | None = None
        self._step = ""
        self._began = self._step_began = time.monotonic()
        self._next_line_seconds = FIRST_LINE_SECONDS
        self._first_line = threading.Timer(0, lambda: None)

    @property
    def seconds(self) -> float:
        """The seconds since the start."""
        return time.monotonic() - self._began

    def __enter__(self) -> Self:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._first_line.cancel()
        if self._bars:
            self._end(done=error is None)
            self._bars.stop()

    def say(self, text: str) -> None:
        """Begin a step, which ends the previous one; the same step again continues."""
        if text == self._step:
            return
        self._step, self._step_began = text, time.monotonic()
        self._next_line_seconds = FIRST_LINE_SECONDS
        if self._bars:
            self._end(done=True)
            self._current = self._bars.add_task(visible(text), total=1)
        elif self._quiet:
            self._first_line.cancel()
            self._first_line = threading.Timer(FIRST_LINE_SECONDS, self._line, [text])
            self._first_line.start()
        else:
            self._line(text)

    def advance(self, done: int, total: int, unit: str = "records") -> None:
        """Show how many of `total` records, or other units, the current step has processed, if it is slow."""
        seconds = time.monotonic() - self._step_began
        text = f"{self._step}: {progress_text(done, total, seconds, unit)}"
        if self._bars and self._current is not None:
            self._bars.update(self._current, description=visible(text))
        elif seconds >= self._next_line_seconds and done < total:
            self._next_line_seconds = seconds + LINE_INTERVAL_SECONDS
            self._first_line.cancel()
            self._line(text)

    def _line(self, text: str) -> None:
        if not self.silent:
            print(f"{self.seconds:7.1f} s  {visible(text)}", file=sys.stderr, flush=True)  # noqa: T201

    def _end(self, *, done: bool) -> None:
        if self._bars and self._current is not None and done:
            self._bars.update(self._current, completed=1)
