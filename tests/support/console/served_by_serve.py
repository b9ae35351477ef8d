"""The console at `/console` of a serving process, over the example lake and its log."""

import os
import re
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.console.changes import example
from support.console.served import get
from support.serve.serving import Serving

READY = "The console is served by process"
_SECONDS = 300


@contextmanager
def serving_console(folder: Path, *, allows_changes: bool = False, **settings: Any) -> Iterator[tuple[Serving, int]]:
    """Yield a serving process whose console is ready, and the port of HTTP; the console must end with it.

    `folder` receives the lake and the log.
    """
    if not (folder / "lake").exists():
        example(folder)
    console = {"allows_changes": allows_changes, "options": {"lake": str(folder / "lake")}}
    http = {"http": ["127.0.0.1", 0], "console": console, "log_partitions": 50}
    with Serving(folder / "lake", folder / "log", **http, **settings) as serving:
        port = urlsplit(serving.http).port
        assert port is not None
        start(serving, port)
        yield serving, port
        serving.stop()
        await_end(process_of_console(serving))


def start(serving: Serving, port: int) -> None:
    """Request a page, and wait until the process that it starts is ready."""
    known = len(serving.said)
    if get(port, "/console/sign-in").status == 503:
        serving.wait_for_line(READY, known)


def process_of_console(serving: Serving) -> int:
    """Return the id of the newest process of the console."""
    return int([match[1] for line in serving.said if (match := re.search(rf"{READY} (\d+)", line))][-1])


def await_end(process: int) -> None:
    """Wait until a process has ended, which may be no child of this one."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return
    assert select.select([descriptor], [], [], _SECONDS)[0], f"process {process} still runs"
    os.close(descriptor)
