"""Every command that a page prints runs as printed: one of each form, on the bundled log and on the example."""

import re
import shlex
from collections import deque
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import locate
from offsetlake.log.address import LogAddress
from offsetlake.pipeline import runner
from offsetlake.web.console.changing.workbench import Workbench
from support.command_line import Run
from support.console.changes import commit, example
from support.console.served import Page, gate, get, served
from support.lakes import new_lake

BROKER_LOG = Path("tests/fixtures/broker-log").absolute()
MAX_OF_KIND = 3
MAX_PAGES = 600
NAMES = ("two part", "-dash", "svc[1]", "it's")
# Commands in sentences that stand for others, without the lake.
NAMED_ONLY = {
    "offsetlake run", "offsetlake expire", "offsetlake emit", "offsetlake cleanup", "offsetlake repair",
    "offsetlake check --full", "offsetlake reject --of", "offsetlake maintain", "offsetlake share",
}  # fmt: skip
PLACEHOLDER = re.compile(r"\b(HOST:PORT|PATTERN|NAME)\b")
CODE = re.compile(r"<code[^>]*>(offsetlake .*?)</code>", re.DOTALL)


def bundled(folder: Path) -> Workbench:
    log = LogAddress(BROKER_LOG)
    runner.catch_up(new_lake(folder / "lake"), log, lambda _: None)
    return Workbench(locate(str(folder / "lake")), log)


def with_names(folder: Path) -> Workbench:
    """The example, with groups whose names a shell reads in another way unless they are quoted."""
    bench = example(folder)
    for name in NAMES:
        commit(folder, name, "orders", 0, 5)
        commit(folder, name, "orders", 0, 3)
    runner.catch_up(Lake.create(folder / "lake"), bench.log, lambda _: None)
    return bench


def printed(port: int) -> set[str]:
    """Return the commands on the pages that are linked from the first one, of each kind of page at most MAX_OF_KIND."""
    waiting, seen, of_kind, found = deque(["/", "/review?show=orphans"]), {"/"}, dict[str, int](), set[str]()
    while waiting and sum(of_kind.values()) < MAX_PAGES:
        path = waiting.popleft()
        kind = path.partition("?")[0]
        of_kind[kind] = of_kind.get(kind, 0) + 1
        if of_kind[kind] > MAX_OF_KIND or kind.startswith("/static") or kind.endswith((".csv", ".toml", ".svg")):
            continue
        text = get(port, path).text
        page = Page(text)
        found |= {str(attributes["data-copy"]) for _, attributes in page.tags if attributes.get("data-copy")}
        found |= {re.sub(r"<[^>]*>", "", unescape(code)) for code in CODE.findall(text)}
        for target in (urljoin(path, str(a["href"]).partition("#")[0]) for tag, a in page.tags if a.get("href")):
            if target not in seen and target.startswith("/"):
                seen.add(target)
                waiting.append(target)
    return found


def form(command: str) -> str:
    """Return the words of a command without the values of its options; names that need quotes are told apart."""
    words = shlex.split(command)
    return " ".join(word.partition("=")[0] for word in words[:2] + [word for word in words[2:] if word[:2] == "--"]) + (
        f" {sum(not word.isalnum() for word in words)}" if any(name in word for name in NAMES for word in words) else ""
    )


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("make", [bundled, with_names])
def test_every_printed_command_runs(make: object, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # `offsetlake report` writes a file
    bench = make(tmp_path)  # type: ignore[operator]
    source = [f"--lake={tmp_path / 'lake'}", f"--log={bench.log.folder}"]
    with served(tmp_path / "lake", gate(allows_changes=True), bench=bench, source=source) as port:
        commands = printed(port)
    commands = {command for command in commands if command not in NAMED_ONLY and not PLACEHOLDER.search(command)}
    by_form = {form(command): command for command in sorted(commands)}
    assert {"groups", "offsets", "restore", "sql"} <= {shlex.split(command)[1] for command in commands}
    for command in by_form.values():
        for part in command.split(" && "):
            words = shlex.split(part)
            code, _, err = run(*words[1:])
            no_ends = words[1] == "lag" and "no log end offsets" in err
            assert code == 0 or no_ends or (words[1] in {"check", "cleanup"} and code == 1), (part, err)
    # A reader executes a plan by appending the option, as the page says.
    plans = [command for command in sorted(commands) if shlex.split(command)[1] == "restore" and " -- " not in command]
    for command in plans[:1]:
        code, _, err = run(*shlex.split(f"{command} --execute")[1:])
        assert "made" in err or "Nothing to change" in err or "may write" in err or "broker" in err, (command, err)
