"""Functions that processes of the console run in tests."""

import os
import threading
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path

from offsetlake.web.console import forked


def answer(request: forked.Request, sending: Connection) -> None:
    forked.answer(_compute, request, sending, nullcontext())


def _compute(name: str, started: str, may_end: str) -> tuple[str, int]:
    """Append the name to a file when called, and return once another file exists."""
    with Path(started).open("a", encoding="ascii") as file:
        file.write(f"{name}\n")
    waiting = threading.Event()
    while may_end and not Path(may_end).exists():
        waiting.wait(0.01)
    return name, os.nice(0)
