"""The examples of the documents and of `--help`, and a shell that runs them as a reader would.

A document's examples are, in its order: the command lines of fenced blocks without a language, and the commands in
backquotes in tables that start with `offsetlake` or `make`. Where a block's commands start with `$ `, what follows is
what they print. A block that is marked `sh elsewhere` cannot run here.
"""

import io
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import pytest
import typer
from typer.main import get_command

from offsetlake.cli import main
from offsetlake.cli.app import app
from support.broker.broker import free_ports
from support.broker.kafka_tools import GROUP_COMMAND, java

ROOT = Path(__file__).parents[2]
LINKED = (".jars", ".venv", "Makefile", "conf", "docs", "tests")
KAFKA_TOOLS = {
    "kafka-consumer-groups": GROUP_COMMAND,
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
SECONDS = 300  # more than any command takes where the machine is busy with other tests
PORTS = ("9092", "9093")

_BLOCK = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
_IN_TABLE = re.compile(r"`((?:offsetlake|make) [^`]+)`")
_FOLDER = re.compile(r"(?<![^\s='\"])/(?=(?:backup|etc/offsetlake|lakes|opt/offsetlake|var)/)")
_NEEDS_A_SHELL = re.compile(r"[|;&]|\$\(")


class Example(NamedTuple):
    """A command as it is written, and what the document says it prints; None where it shows nothing."""

    command: str
    output: str | None = None


def examples(text: str) -> Iterator[Example]:
    """Return the examples of a Markdown document in its order."""
    end = 0
    for block in _BLOCK.finditer(text):
        yield from _in_tables(text[end : block.start()])
        if not block[1]:
            yield from _in_block(block[2])
        end = block.end()
    yield from _in_tables(text[end:])


def elsewhere(text: str) -> list[str]:
    """Return the command lines of a document that are marked as not running here."""
    return [line for kind, block in _BLOCK.findall(text) if kind == "sh elsewhere" for line in block.splitlines()]


def unknown_blocks(text: str) -> set[str]:
    """Return the markings of blocks that are neither examples nor in a language that is only shown."""
    return {kind for kind, _ in _BLOCK.findall(text)} - {"", "sh elsewhere", "toml", "text", "json", "python", "sql"}


def in_sentences(text: str) -> list[str]:
    """Return the commands of `offsetlake` that a document mentions outside of blocks and tables."""
    prose = "\n".join(line for line in _BLOCK.sub("", text).splitlines() if not line.startswith("|"))
    return [re.sub(r"\s+", " ", command) for command in re.findall(r"`(offsetlake [^`]+)`", prose)]


def _in_tables(text: str) -> Iterator[Example]:
    for line in text.splitlines():
        if line.startswith("|"):
            yield from (Example(command.replace("\\|", "|")) for command in _IN_TABLE.findall(line))


def _in_block(block: str) -> Iterator[Example]:
    if block.startswith("$ "):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield Example(command, output or None)
    else:
        yield from map(Example, block.replace("\\\n", " ").splitlines())


def in_help() -> dict[str, list[Example]]:
    """Return the examples at the end of each command's help, in the order of the help."""
    found: dict[str, list[Example]] = {}

    def visit(command: typer.core.TyperCommand | typer.core.TyperGroup, name: str) -> None:
        if hasattr(command, "commands"):
            for each, below in command.commands.items():
                visit(below, f"{name} {each}".strip())
        else:
            lines = (command.epilog or "").splitlines()
            found[name] = [Example(line.strip()) for line in lines if line.startswith("  ")]

    visit(get_command(app), "")  # type: ignore[arg-type]
    return found


def check_command(line: str) -> None:
    """Raise where there is no such command, or it does not take the options it is given."""
    _, *words = shlex.split(line)
    known = get_command(app)
    while hasattr(known, "commands") and words:
        known = known.commands[words.pop(0)]
    if words:
        known.make_context(known.name, words)


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


class Shell:
    """Runs commands in a folder like a checkout; `names` says what the names of the documents stand for.

    Absolute paths are below the folder, and each port is a free one. `offsetlake` runs in this process, except for
    `serve`, which runs beside it until the next one.
    """

    def __init__(self, folder: Path, names: Mapping[str, str]) -> None:
        self._folder = folder
        self._names = {**names, **{f":{port}": f":{free}" for port, free in zip(PORTS, free_ports(2), strict=True)}}
        self._open = ExitStack()
        self._serving: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Make the folder, and enter it, with no settings of offsetlake in the environment."""
        patch = self._open.enter_context(pytest.MonkeyPatch.context())
        for name in [name for name in os.environ if name.startswith("OFFSETLAKE_") and name != "OFFSETLAKE_JARS"]:
            patch.delenv(name)
        for name in LINKED:
            (self._folder / name).symlink_to(ROOT / name)
        tools = self._folder / "tools"
        tools.mkdir()
        for name, main_class in KAFKA_TOOLS.items():
            (tools / name).write_text(f'#!/bin/sh\nexec {shlex.join(java(main_class))} "$@"\n')
            (tools / name).chmod(0o755)
        patch.setenv("PATH", f"{self._folder}/.venv/bin:{tools}:{os.environ['PATH']}")
        patch.setattr(sys, "stdin", None)
        patch.chdir(self._folder)
        self._open.callback(self.stop_serving)
        self._open.callback(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT))
        self._patch = patch
        return self

    def __exit__(self, *_error: object) -> None:
        """End what serves, and leave the folder."""
        self._open.close()

    def run(self, command: str) -> Result:
        """Run one command line."""
        for name, stands_for in self._names.items():
            command = command.replace(name, stands_for)
        command = _FOLDER.sub(f"{self._folder}/", command)
        words = shlex.split(command, comments=True)
        match words:
            case ["export" | "unset" as verb, assignment]:
                return self._set(verb, assignment)
            case ["make", target]:
                return self._make(target)
            case ["offsetlake" | ".venv/bin/offsetlake", *arguments] if not _NEEDS_A_SHELL.search(shlex.join(words)):
                if arguments[:1] == ["serve"] and "--check" not in arguments:
                    return self._serve(arguments)
                return self._offsetlake(arguments)
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, input="secret\n", check=False, timeout=SECONDS
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def _set(self, verb: str, assignment: str) -> Result:
        name, _, value = assignment.partition("=")
        if verb == "export":
            self._patch.setenv(name, value)
        else:
            self._patch.delenv(name)
        return Result(0, "", "")

    def _make(self, target: str) -> Result:
        """Run the commands of a target, without those that set the environment up."""
        command = ["make", "-n", "-o", "setup", target]
        of_make = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")  # by which a make that runs the tests would make this one talk
        environment = {name: value for name, value in os.environ.items() if name not in of_make}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            return Result(done.returncode, done.stdout, done.stderr)
        results = [self.run(line) for line in done.stdout.splitlines()]
        return Result(max(of.code for of in results), "", "".join(of.err for of in results))

    def _offsetlake(self, arguments: list[str]) -> Result:
        target = None
        if ">" in arguments:
            arguments, (target,) = arguments[: arguments.index(">")], arguments[arguments.index(">") + 1 :]
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        self._patch.setattr(sys, "stdin", io.StringIO("secret\n"))
        with redirect_stdout(out), redirect_stderr(err):
            code = main.run(arguments)
        for stream in (out, err):
            stream.seek(0)
        if target is None:
            return Result(code, out.read(), err.read())
        Path(target).write_text(out.read(), encoding="utf-8")
        return Result(code, "", err.read())

    def _serve(self, arguments: list[str]) -> Result:
        self.stop_serving()
        command = [sys.executable, "-m", "offsetlake.cli", *arguments]
        self._serving = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        said = []
        assert self._serving.stderr is not None
        for line in self._serving.stderr:
            said.append(line)
            if re.search(r"\bServing \d", line):
                return Result(0, "", "".join(said))
        return Result(self._serving.wait(), "", "".join(said))

    def stop_serving(self) -> None:
        """End what serves; an exit code other than 0 is an error."""
        if self._serving is None:
            return
        self._serving.terminate()
        _, said = self._serving.communicate(timeout=60)
        assert self._serving.returncode == 0, said
        self._serving = None


@contextmanager
def in_checkout(folder: Path, names: Mapping[str, str]) -> Iterator[Shell]:
    """Return a shell in which `make run` has been run."""
    with Shell(folder, names) as shell:
        made = shell.run("make run")
        assert made.code == 0, made.err
        yield shell
