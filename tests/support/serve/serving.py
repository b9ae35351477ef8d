"""The serving process as a context manager for tests."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

START_SECONDS = 300
AS_INSTALLED = (
    "import runpy, sys; sys.modules['hypothesis'] = None; "
    "runpy.run_module('offsetlake.cli.serve_process', run_name='__main__', alter_sys=True)"
)
"""Runs the process without Hypothesis, which users do not install: kio imports it if it can, which takes 0.2 s."""


class ServingFailedError(RuntimeError):
    """The process ended before it served; the message contains its log lines."""


class Serving:
    """A serving process over a lake and a log, which runs inside `with` and listens on a free port.

    `prefix` is a command that runs the following command, such as `prlimit`; `program` are the arguments of Python.
    `said` contains the lines that the process has logged.
    """

    def __init__(
        self,
        lake: Path,
        log: Path,
        prefix: Sequence[str] = (),
        program: Sequence[str] = ("-c", AS_INSTALLED),
        **settings: Any,
    ) -> None:
        self._prefix, self._program = prefix, program
        self._settings = {"lake": str(lake), "log": str(log), "host": "127.0.0.1", "port": 0, **settings}
        self.said: list[str] = []
        self._serves = threading.Event()
        self._line = threading.Condition()
        self.process: subprocess.Popen[str]
        self.bootstrap = self.http = ""

    def __enter__(self) -> Self:
        """Start the process, and wait until it serves."""
        command = [*self._prefix, sys.executable, *self._program, json.dumps(self._settings)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()
        if not self._serves.wait(START_SECONDS) or not self.bootstrap:
            self.kill()
            raise ServingFailedError("\n".join(self.said))
        return self

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if match := re.search(r"Listening on (\S+)$", line.rstrip()):
                self.bootstrap = match[1]
            if match := re.search(r"Serving HTTP on (\S+)$", line.rstrip()):
                self.http = match[1]
            with self._line:  # tests that wait for the line use the addresses
                self.said.append(line.rstrip())
                self._line.notify_all()
            if re.search(r"Serving \d+ offsets", line):
                self._serves.set()
        self._serves.set()

    def wait_for_line(self, text: str, first: int = 0) -> None:
        """Wait until a line contains a text; `first` is the index of the first line that is searched."""
        with self._line:
            found = self._line.wait_for(lambda: any(text in line for line in self.said[first:]), START_SECONDS)
        assert found, "\n".join(self.said)

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Stop the process with SIGTERM; `said` then contains all of its lines."""
        self.stop()

    def stop(self) -> int:
        """Stop the process with SIGTERM; return its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return self._ended()

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.process.kill()
        self._ended()

    def _ended(self) -> int:
        code = self.process.wait(START_SECONDS)
        self._listener.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code
