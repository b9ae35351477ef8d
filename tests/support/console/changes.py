"""A lake and a log to change, and the forms that a browser would submit."""

import re
import threading
from pathlib import Path

from offsetlake.cli.example_log import write, write_example
from offsetlake.console.changing.workbench import Workbench
from offsetlake.location.locate import locate
from offsetlake.log.address import LogAddress
from offsetlake.pipeline import runner
from support.console.served import Answer, get, post
from support.lakes import new_lake


def example(folder: Path) -> Workbench:
    """Write the example log and its lake into a folder, and return the workbench for them."""
    write_example(folder / "log")
    runner.catch_up(new_lake(folder / "lake"), LogAddress(folder / "log"), lambda _: None)
    return Workbench(locate(str(folder / "lake")), LogAddress(folder / "log"))


def commit(folder: Path, group: str, topic: str, partition: int, offset: int) -> None:
    """Append a commit that the lake has not read."""
    write(folder / "log", [(3600, group, topic, partition, offset)])


def end_of_work() -> None:
    """Wait until no change is planned or executed."""
    for thread in threading.enumerate():
        if thread.name == "change":
            thread.join()


def form_token(port: int, **headers: str) -> str:
    """Return the secret that the forms of a visitor contain."""
    found = re.search(r'name="form_token" value="([^"]+)"', get(port, "/change?group=billing", **headers).text)
    assert found
    return found[1]


def submit(port: int, path: str, token: str, fields: dict[str, object], **headers: str) -> tuple[str, Answer]:
    """Submit a form, and return the address that it leads to, and that page when the work has ended."""
    answer = post(port, path, {"form_token": token, **fields}, **headers)
    if answer.status != 303:
        return "", answer
    end_of_work()
    return answer.headers["location"], get(port, answer.headers["location"], **headers)
