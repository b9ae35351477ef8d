"""Every command works from the wheel alone, installed into an environment without a checkout."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.console.served import get
from support.documents import in_help
from support.e2e.wheel import ROOT, build_wheel, make_environment

pytestmark = [pytest.mark.long, pytest.mark.jvm]

# Fails when a file of the checkout is opened, in every process of the environment; its .venv has the dependencies.
GUARD = f"""\
import os, sys


def _refuse(event, arguments, root={str(ROOT)!r}):
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        path = os.path.abspath(os.fsdecode(arguments[0]))
        if path.startswith(root + "/") and not path.startswith(root + "/.venv/"):
            raise PermissionError("a file of the checkout is opened: " + path)


sys.addaudithook(_refuse)
"""

# Runs the commands that are its arguments in one process, which saves their starts, until one of them fails.
RUN_ALL = """\
import io, shlex, sys

from offsetlake.cli.main import run

for line in sys.argv[1:]:
    sys.stdin = io.StringIO("pass\\n")
    print(line, file=sys.stderr, flush=True)
    if code := run(shlex.split(line)[1:]):
        sys.exit(code)
"""

LOCAL_SPARK = '[spark]\nmaster = "local[1]"\n"spark.driver.memory" = "600m"\n'

COMMANDS = """\
offsetlake example log
offsetlake run --log log --now 2026-01-31T15:00
offsetlake ingest
offsetlake compact
offsetlake expire --now 2026-01-31T15:00
offsetlake expire --what-if --retention 3d
offsetlake emit
offsetlake run --emit --now 2026-01-31T15:00
offsetlake check --full
offsetlake maintain
offsetlake repair
offsetlake rebuild --table offsets
offsetlake serve --log log --check
offsetlake credentials add billing
offsetlake credentials token grafana
offsetlake credentials list
offsetlake credentials remove billing
offsetlake offsets
offsetlake groups --as-of 2026-01-31T14:00:10
offsetlake history --group billing --topic orders --partition 0
offsetlake audit-events
offsetlake sql "SELECT * FROM runs"
offsetlake transactions
offsetlake share
offsetlake alterations
offsetlake tombstones
offsetlake runs
offsetlake audit changes
offsetlake diff --from 2026-01-31T14:00:05 --to 2026-01-31T14:00:15
offsetlake views
offsetlake report --to report.html
offsetlake reset search --all-topics --shift-by -100 --execute
offsetlake cleanup search --topic orders
offsetlake restore billing --as-of 2026-01-31T14:00:05
offsetlake undelete nightly-report
offsetlake snapshot offsets.parquet
offsetlake import offsets.parquet
"""
NEEDS_A_CLUSTER = {"lag", "adopt", "return", "translate", "export", "forget"}
"""Commands that are not run: `export` needs ZooKeeper, `forget` the audit events of a served log."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment into which the wheel is installed."""
    folder = tmp_path_factory.mktemp("installed")
    packages = make_environment(folder)
    (packages / "guard.py").write_text(GUARD)
    (packages / "a-guard.pth").write_text("import guard\n")
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, build_wheel(tmp_path_factory.mktemp("wheel"))], check=True, capture_output=True)
    return folder


def test_every_command_works_from_the_wheel_alone(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(LOCAL_SPARK, encoding="utf-8")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OFFSETLAKE_"))}
    environment = inherited | {"PATH": f"{installed}/bin:{os.environ['PATH']}", "OFFSETLAKE_CONFIG": "settings.toml"}
    first, *others = COMMANDS.splitlines()
    for command in (shlex.split(first), [installed / "bin" / "python", "-c", RUN_ALL, *others]):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").stat().st_size
    command = [installed / "bin" / "offsetlake", "console", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as console:
        assert console.stderr is not None
        try:
            port = int(console.stderr.readline().partition("127.0.0.1:")[2].partition("/")[0])
            paths = ("/", "/static/console.css", "/static/uplot-1.6.32.min.js", "/static/icon.svg")
            answers = [get(port, path) for path in paths]
        finally:
            console.terminate()
    assert [answer.status for answer in answers] == [200] * 4
    assert "billing" in answers[0].text


def test_an_open_file_of_the_checkout_would_be_noticed(installed: Path) -> None:
    code = "import offsetlake; print(offsetlake.__file__); open({!r})".format(str(ROOT / "conf" / "spark.conf"))
    done = subprocess.run([installed / "bin" / "python", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(str(installed))
    assert "PermissionError: a file of the checkout is opened" in done.stderr


def test_every_command_is_listed() -> None:
    listed = {" ".join(shlex.split(line)[1:]) for line in COMMANDS.splitlines()}
    assert {name for name in in_help() if not any(line.startswith(name) for line in listed)} == {
        *NEEDS_A_CLUSTER,
        "console",  # does not end; see above
        "reject",  # needs a file with planned tombstones
    }
