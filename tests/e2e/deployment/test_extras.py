"""Each extra of the wheel installs what its part needs, and a command whose extra is missing names it."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from offsetlake.errors import NotInstalled
from offsetlake.lake.lake import Lake
from offsetlake.util.extras import EXTRAS
from support.console.served import get
from support.e2e.wheel import ROOT, build_wheel, install

pytestmark = [pytest.mark.long, pytest.mark.jvm]

LOG = str(ROOT / "tests" / "fixtures" / "broker-log")
MISSING = {
    f"run --log {LOG} --lake new": "jobs",
    "check --lake lake": "checks",
    "serve --lake new --log new-log": "serve",
    "adopt --lake new --log new-log": "serve",
    "console --lake lake": "console",
    "export zookeeper://localhost:1": "zookeeper",
    "import zookeeper://localhost:1": "zookeeper",
}
"""Commands that need an extra, with the extra."""

LOCAL_SPARK = '[spark]\nmaster = "local[1]"\n"spark.driver.memory" = "600m"\n'
API = f"""
import offsetlake
lake = offsetlake.open("lake")
assert lake.offsets("warehouse").num_rows == 3
assert lake.as_of("2026-11-21T05:38:48", "warehouse").num_rows == 3
assert lake.audit("changes", "warehouse").num_rows == 4
assert offsetlake.open_snapshot("lake", {LOG!r}).offsets("warehouse").num_rows == 3
"""
ZOOKEEPER = """
from offsetlake.cli.main import run
from offsetlake.zookeeper import client, writing
client.CONNECT_SECONDS = 0.2
raise SystemExit(run(["import", "zookeeper://localhost:1"]))
"""


class Environment:
    """An environment with the wheel and one extra, and a folder with the lake of the bundled log."""

    def __init__(self, folder: Path, cache: Path) -> None:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OFFSETLAKE_"))
        }
        self.folder = folder
        self.variables = inherited | {"OFFSETLAKE_CONFIG": "settings.toml", "NUMBA_CACHE_DIR": str(cache)}

    def run(self, program: str, *arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        """Run a program of the environment; it must end with the exit code."""
        done = subprocess.run(
            [f"environment/bin/{program}", *arguments],
            cwd=self.folder, env=self.variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done

    @contextmanager
    def serving(self, *arguments: str, address: str) -> Iterator[int]:
        """Run a command that does not end, and yield the port in the line that matches a pattern."""
        command = ["environment/bin/offsetlake", *arguments]
        with subprocess.Popen(
            command, cwd=self.folder, env=self.variables, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            try:
                lines = list[str]()
                while not (found := re.search(address, lines[-1] if lines else "")):
                    lines.append(process.stderr.readline())
                    assert lines[-1], "".join(lines)
                yield int(found[1])
            finally:
                process.terminate()
                process.stderr.read()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, broker_lake: Lake) -> Callable[[str], Environment]:
    """Installs the wheel with an extra, always at the same path, so that what Numba compiles is compiled once."""
    wheel, folder = build_wheel(tmp_path_factory.mktemp("wheel")), tmp_path_factory.mktemp("extras")
    environment = Environment(folder, tmp_path_factory.mktemp("numba"))

    def make(extra: str) -> Environment:
        shutil.rmtree(folder)
        shutil.copytree(str(broker_lake.location), folder / "lake")
        (folder / "settings.toml").write_text(LOCAL_SPARK, encoding="utf-8")
        install(folder / "environment", f"{wheel}{extra}")
        return environment

    return make


def test_the_plain_package_answers_questions_and_names_missing_extras(
    installed: Callable[[str], Environment],
) -> None:
    plain = installed("")
    assert [*plain.folder.glob("environment/lib/python*/site-packages/offsetlake/py.typed")]
    plain.run("python", "-c", API)
    assert "warehouse" in plain.run("offsetlake", "groups").stdout
    plain.run("offsetlake", "report")
    plain.run("offsetlake", "reset", "warehouse", "--all-topics", "--shift-by", "-1", "--log", LOG)
    for command, extra in MISSING.items():
        last = plain.run("offsetlake", *command.split(), code=NotInstalled.exit_code).stderr.splitlines()[-1]
        found = re.fullmatch(r"error: This requires (\w+), which is not installed: run `(.+)`\.", last)
        assert found is not None, last
        assert found[1] in EXTRAS[extra]
        assert found[2] == f"pip install 'offsetlake[{extra}]'"


def test_jobs(installed: Callable[[str], Environment]) -> None:
    jobs = installed("[jobs]")
    jobs.run("offsetlake", "run", "--log", LOG, "--lake", "new")
    assert len(jobs.run("offsetlake", "offsets", "--lake", "new", "--format", "json").stdout.splitlines()) == 196


def test_checks(installed: Callable[[str], Environment]) -> None:
    assert "after_compact" in installed("[checks]").run("offsetlake", "check").stdout


def test_serve(installed: Callable[[str], Environment]) -> None:
    options = ("--lake", "new", "--log", "new-log", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0")
    with installed("[serve]").serving("serve", *options, address=r"Serving HTTP on .*:(\d+)") as port:
        while (page := get(port, "/console/")).status == 503:  # it is starting
            time.sleep(0.1)
        assert (page.status, get(port, "/readyz").status, get(port, "/metrics").status) == (200, 200, 200)


def test_console(installed: Callable[[str], Environment]) -> None:
    options = ("--lake", "lake", "--http", "127.0.0.1:0")
    with installed("[console]").serving("console", *options, address=r"http://127\.0\.0\.1:(\d+)") as port:
        while "retry-after" in (page := get(port, "/")).headers:  # it is computed in the background
            time.sleep(0.1)
        assert "warehouse" in page.text


def test_zookeeper(installed: Callable[[str], Environment]) -> None:
    assert "localhost:1" in installed("[zookeeper]").run("python", "-c", ZOOKEEPER, code=3).stderr
