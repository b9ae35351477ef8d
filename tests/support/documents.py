"""The examples of the documents and of `--help`, and a shell that runs them as a reader would.

The examples of a document, in its order, are the command lines of fenced blocks without a language, and in tables the
commands in backquotes that start with `offsetlake` or `make`. If the commands of a block start with `$ `, the lines
after a command are its output. A block with the language `sh elsewhere` cannot run in the tests.
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
from support.broker.kafka_tools import GROUP_COMMAND, NEWER, java

ROOT = Path(__file__).parents[2]
NOTES = [
    ROOT / "ARCHITECTURE.md",
    *(path for folder in ("dags", "lib", "tests") for path in sorted((ROOT / folder).rglob("*.md"))),
]
"""The pages beside the code and the tests, for those who change them. No test runs their commands."""

LINKED = (".jars", ".venv", "Makefile", "conf", "docs", "tests")
KAFKA_TOOLS = {
    "kafka-consumer-groups": GROUP_COMMAND,
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
SECONDS = 300  # more than any command takes while the machine runs other tests
PORTS = ("9092", "9093", "8090")

_BLOCK = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
_IN_TABLE = re.compile(r"`((?:offsetlake|make) [^`]+)`")
_FOLDER = re.compile(r"(?<![^\s='\"])/(?=(?:backup|etc/offsetlake|lakes|opt/offsetlake|var)/)")
_NEEDS_A_SHELL = re.compile(r"[|;&]|\$\(|--fleet")  # processes of a fleet are forked from one that opened no table


class Example(NamedTuple):
    """A command as written, and its documented output; None if the document shows none."""

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
    """Return the command lines of a document that cannot run in the tests."""
    return [line for kind, block in _BLOCK.findall(text) if kind == "sh elsewhere" for line in block.splitlines()]


def unknown_blocks(text: str) -> set[str]:
    """Return the languages of blocks that are neither examples nor of a language that is only shown."""
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
    examples_by_command: dict[str, list[Example]] = {}

    def visit(command: typer.core.TyperCommand | typer.core.TyperGroup, name: str) -> None:
        if hasattr(command, "commands"):
            for word, subcommand in command.commands.items():
                visit(subcommand, f"{name} {word}".strip())
        else:
            lines = (command.epilog or "").splitlines()
            examples_by_command[name] = [Example(line.strip()) for line in lines if line.startswith("  ")]

    visit(get_command(app), "")  # type: ignore[arg-type]
    return examples_by_command


def check_command(line: str) -> None:
    """Raise an error if the command does not exist or does not accept its options."""
    _, *words = shlex.split(line)
    known = get_command(app)
    while hasattr(known, "commands") and words:
        known = known.commands[words.pop(0)]
    if words:
        known.make_context(known.name, words)


@dataclass(frozen=True, slots=True)
class Result:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


class Shell:
    """Runs commands in a folder like a checkout; `names` maps names in the documents to their replacements.

    Absolute paths are moved below the folder, and ports are replaced by free ones. `offsetlake` runs in this process,
    except for `serve` and `console`, which run in a process of their own until the next of them.
    """

    def __init__(self, folder: Path, names: Mapping[str, str]) -> None:
        self._folder = folder
        self._names = {
            **names,
            **{f":{port}": f":{free}" for port, free in zip(PORTS, free_ports(len(PORTS)), strict=True)},
        }
        self._open = ExitStack()
        self._serving: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Prepare the folder and change to it, with no settings of offsetlake in the environment."""
        patch = self._open.enter_context(pytest.MonkeyPatch.context())
        for name in [name for name in os.environ if name.startswith("OFFSETLAKE_")]:
            patch.delenv(name)
        for name in LINKED:
            (self._folder / name).symlink_to(ROOT / name)
        tools = self._folder / "tools"
        tools.mkdir()
        for name, main_class in KAFKA_TOOLS.items():
            (tools / name).write_text(f'#!/bin/sh\nexec {shlex.join(java(main_class, version=NEWER))} "$@"\n')
            (tools / name).chmod(0o755)
        patch.setenv("PATH", f"{self._folder}/.venv/bin:{tools}:{os.environ['PATH']}")
        patch.setattr(sys, "stdin", None)
        patch.chdir(self._folder)
        self._open.callback(self.stop_serving)
        self._open.callback(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT))
        self._patch = patch
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop the server and leave the folder."""
        self._open.close()

    def run(self, command: str) -> Result:
        """Run one command line."""
        for name, replacement in self._names.items():
            command = command.replace(name, replacement)
        command = _FOLDER.sub(f"{self._folder}/", command)
        words = shlex.split(command, comments=True)
        match words:
            case ["export" | "unset" as verb, assignment]:
                return self._set(verb, assignment)
            case ["make", target]:
                return self._make(target)
            case ["offsetlake" | ".venv/bin/offsetlake", *arguments] if not _NEEDS_A_SHELL.search(shlex.join(words)):
                if arguments[:1] in (["serve"], ["console"]) and "--check" not in arguments:
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
        """Run the commands of a target, without those that set up the environment."""
        command = ["make", "-n", "-o", "setup", "-o", ".jars/spark/.ready", target]
        make_variables = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")  # set by a make that runs the tests: more output
        environment = {name: value for name, value in os.environ.items() if name not in make_variables}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            return Result(done.returncode, done.stdout, done.stderr)
        results = [self.run(line) for line in done.stdout.splitlines()]
        return Result(max(result.code for result in results), "", "".join(result.err for result in results))

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
        lines = []
        assert self._serving.stderr is not None
        for line in self._serving.stderr:
            lines.append(line)
            if re.search(r"\bServing (\d|https?:)", line):
                return Result(0, "", "".join(lines))
        return Result(self._serving.wait(), "", "".join(lines))

    def stop_serving(self) -> None:
        """Stop the server; an exit code other than 0 is an error."""
        if self._serving is None:
            return
        self._serving.terminate()
        _, err = self._serving.communicate(timeout=SECONDS)
        assert self._serving.returncode == 0, err
        self._serving = None


@contextmanager
def in_checkout(folder: Path, names: Mapping[str, str]) -> Iterator[Shell]:
    """Yield a shell in which `make run` has been run."""
    with Shell(folder, names) as shell:
        result = shell.run("make run")
        assert result.code == 0, result.err
        yield shell
