"""A lake and a log to change, and the forms that a browser would submit."""

import re
import shutil
import time
from pathlib import Path

from offsetlake.lake.location.locate import locate
from offsetlake.log.address import LogAddress
from offsetlake.log.writer.example_log import write, write_example
from offsetlake.pipeline import runner
from offsetlake.web.console.changing.workbench import Workbench, await_changes
from support.console.served import Answer, get, post
from support.lakes import new_lake

_SECONDS = 300


def example(folder: Path) -> Workbench:
    """Write the example log and its lake into a folder, and return the workbench for them."""
    write_example(folder / "log")
    runner.catch_up(new_lake(folder / "lake"), LogAddress(folder / "log"), lambda _: None)
    return Workbench(locate(str(folder / "lake")), LogAddress(folder / "log"))


def copied(original: Path, folder: Path) -> Workbench:
    """Copy a folder with a log and its lake, and return the workbench for the copy."""
    shutil.copytree(original, folder, dirs_exist_ok=True)
    return Workbench(locate(str(folder / "lake")), LogAddress(folder / "log"))


def commit(folder: Path, group: str, topic: str, partition: int, offset: int) -> None:
    """Append a commit that the lake has not read."""
    write(folder / "log", [(3600, group, topic, partition, offset)])


def form_token(port: int, base: str = "", **headers: str) -> str:
    """Return the secret that the forms of a visitor contain; `base` is the path of the console."""
    page = get(port, f"{base}/change?group=billing", **headers).text
    found = re.search(r'name="form_token" value="([^"]+)"', page)
    assert found
    return found[1]


def result(port: int, path: str, **headers: str) -> Answer:
    """Return the page of a change of another process when it is planned or executed."""
    end = time.monotonic() + _SECONDS
    while "static/changes.js" in (answer := get(port, path, **headers)).text:
        assert time.monotonic() < end, answer.text
        time.sleep(0.1)  # between two requests, as the script of the page
    return answer


def submit(port: int, path: str, token: str, fields: dict[str, object], **headers: str) -> tuple[str, Answer]:
    """Submit a form, and return the address that it leads to, and that page when the work has ended."""
    answer = post(port, path, {"form_token": token, **fields}, **headers)
    if answer.status != 303:
        return "", answer
    await_changes()
    return answer.headers["location"], get(port, answer.headers["location"], **headers)
