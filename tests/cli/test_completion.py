"""Completion in a real shell: commands, groups, topics and views."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import Run
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle
from support.lakes import new_lake

pytestmark = pytest.mark.slow

REAL_LOG = Path(__file__).parents[1] / "fixtures" / "broker-log"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion") / "lake"
    cycle(InProcess(), new_lake(folder), REAL_LOG)
    return folder


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("offsets --group ware", ["warehouse"]),
        ("history --group warehouse --topic s", ["shipments"]),
        ("history --group warehouse --topic o", []),
        ("cleanup ware", ["warehouse"]),
        ("audit comm", ["commit_outcomes", "commit_rate", "commit_steps"]),
        ("offsets --lake /lakes/absent --group ware", []),
    ],
)
def test_names_of_the_lake_are_completed(
    lake: Path, run: Run, monkeypatch: pytest.MonkeyPatch, line: str, expected: list[str]
) -> None:
    monkeypatch.setenv("OFFSETLAKE_LAKE", str(lake))
    monkeypatch.setenv("_OFFSETLAKE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"offsetlake {line}")
    monkeypatch.setenv("COMP_CWORD", str(len(line.split())))
    code, output, errors = run()
    assert (code, output.split(), errors) == (0, expected, "")


def test_bash_completes_with_the_installed_script(lake: Path) -> None:
    program = Path(sys.executable).parent
    script = (
        "source <(offsetlake --show-completion bash); COMP_WORDS=(offsetlake groups --group ware); COMP_CWORD=3; "
        f"export OFFSETLAKE_LAKE={shlex.quote(str(lake))}; _offsetlake_completion offsetlake; echo ${{COMPREPLY[@]}}"
    )
    environment = {"PATH": f"{program}:/usr/bin:/bin", "HOME": str(lake.parent)}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "warehouse\n", done.stderr
