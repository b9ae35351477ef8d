"""Command lines that are shown to people run as they are printed."""

import shlex
from pathlib import Path

import pytest

from offsetlake.util.command_lines import command_line, with_options


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["cleanup", "old"], ["cleanup", "old", "--execute"]),
        (["cleanup", "--topic=a", "--", "-old", "-b"], ["cleanup", "--topic=a", "--execute", "--", "-old", "-b"]),
        (["cleanup", "--"], ["cleanup", "--execute", "--"]),
    ],
)  # fmt: skip
def test_options_precede_the_names_after_two_hyphens(words: list[str], expected: list[str]) -> None:
    assert with_options(words, "--execute") == expected


def test_words_are_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["pytest"])
    assert shlex.split(command_line("groups", "--group", "it's $HOME *")) == [
        "offsetlake", "groups", "--group", "it's $HOME *",
    ]  # fmt: skip


@pytest.mark.parametrize(("on_path", "program"), [(True, "offsetlake"), (False, "bin/offsetlake")])
def test_program_is_named_as_the_shell_finds_it(
    on_path: bool, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "bin" / "offsetlake"
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(script)])
    monkeypatch.setenv("PATH", str(script.parent) if on_path else "")
    assert command_line("runs") == f"{program} runs"
