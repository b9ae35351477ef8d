"""The Spark session that a job opens: its properties, who can see its secrets, and errors of invalid properties."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from offsetlake.pipeline.spark import CLASS_ARCHIVE, redacted

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

FIXTURES = Path(__file__).parents[1] / "fixtures"
SECRET = "hunter2-of-the-store"  # noqa: S105 - of no store
GIVEN = {
    "spark.master": "local[1]",
    "spark.hadoop.fs.s3a.secret.key": SECRET,
    "spark.driver.memory": "600m",
    "spark.example.regex": r"a\.b: c=d # e",
}

# Opens two sessions with the properties on standard input, and prints the settings, the command lines of all processes,
# the process of each session's JVM, whether it maps the archive of classes, and its output. The optional argument
# replaces the archive.
SESSION = """
import contextlib, json, sys
from pathlib import Path

from offsetlake.pipeline import spark as sessions
from offsetlake.pipeline.lazy_session import LazySession

if sys.argv[1:]:
    sessions.CLASS_ARCHIVE = Path(sys.argv[1])
properties = json.load(sys.stdin)
jvms = []
for _ in range(2):
    with LazySession(properties, lambda _: None) as opened:
        spark = opened()
        jvms.append(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
mapped = Path("/proc", str(jvms[0]), "maps").read_text()
archive = any(line.endswith(str(sessions.CLASS_ARCHIVE.resolve())) for line in mapped.splitlines())
output = sessions.engine_tail(properties)
commands = []
for process in Path("/proc").glob("[0-9]*/cmdline"):
    with contextlib.suppress(OSError):
        commands.append(process.read_text(errors="replace"))
memory = spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory()
jars = spark.sparkContext._jvm.java.lang.System.getProperty("java.class.path")
settings = dict(spark.sparkContext.getConf().getAll())
print(json.dumps({
    "settings": settings, "commands": commands, "memory": memory, "jars": jars,
    "jvms": jvms, "archive": archive, "output": output,
}))
"""


@pytest.fixture(scope="module")
def session() -> dict[str, Any]:
    """What SESSION prints with the properties GIVEN."""
    return _open_session(GIVEN)


def _open_session(properties: dict[str, str], *arguments: str | Path) -> dict[str, Any]:
    command = [sys.executable, "-c", SESSION, *arguments]
    done = subprocess.run(command, input=json.dumps(properties), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


@pytest.mark.long
def test_properties_reach_the_session_and_its_jvm(session: dict[str, Any]) -> None:
    assert {name: session["settings"].get(name) for name in GIVEN} == GIVEN
    assert session["settings"]["spark.sql.session.timeZone"] == "UTC"
    assert session["memory"] <= 600 << 20


def test_no_command_line_contains_a_secret(session: dict[str, Any]) -> None:
    assert any("org.apache.spark.deploy.SparkSubmit" in command for command in session["commands"])
    assert [command for command in session["commands"] if SECRET in command] == []


def test_driver_with_a_local_master_listens_on_loopback(session: dict[str, Any]) -> None:
    assert session["settings"]["spark.driver.host"] == "127.0.0.1"
    assert session["settings"]["spark.driver.bindAddress"] == "127.0.0.1"


def test_session_of_a_job_needs_no_jars_of_delta(session: dict[str, Any]) -> None:
    assert "delta" not in session["jars"]
    assert not [name for name in session["settings"] if "delta" in session["settings"][name]]


def test_jvm_maps_the_archive_of_classes(session: dict[str, Any]) -> None:
    assert CLASS_ARCHIVE.exists(), "run `python -m offsetlake.pipeline.class_archive`, as `make setup` does"
    assert session["archive"]


def test_second_session_of_a_process_has_the_same_jvm(session: dict[str, Any]) -> None:
    first, second = session["jvms"]
    assert first == second


@pytest.mark.long
@pytest.mark.parametrize("content", [b"", b"no archive" * 1000, None], ids=["empty", "damaged", "other class path"])
def test_archive_that_a_jvm_cannot_use_is_ignored(
    session: dict[str, Any], tmp_path: Path, content: bytes | None
) -> None:
    archive = tmp_path / CLASS_ARCHIVE.name
    properties = dict(GIVEN)
    if content is None:
        archive.symlink_to(CLASS_ARCHIVE)
        properties["spark.driver.extraClassPath"] = str(tmp_path)
    else:
        archive.write_bytes(content)
    opened = _open_session(properties, archive)
    assert (opened["archive"], opened["output"]) == (False, session["output"])


@pytest.mark.parametrize(
    ("master", "setting", "says"),
    [
        ("local[1]", "spark.task.cpus", ["Spark did not start with the master local[1]: ", "spark.task.cpus"]),
        pytest.param(
            "local[1]", "spark.executor.memory", ["Spark's JVM did not start: ", "memory"], marks=pytest.mark.long
        ),
        pytest.param(  # Spark gives up after a minute
            "spark://127.0.0.1:1", "spark.example", ["the master spark://127.0.0.1:1: ", "unresponsive"],
            marks=pytest.mark.long,
        ),
    ],
)  # fmt: skip
def test_spark_that_cannot_start_is_an_error_with_the_reason(
    tmp_path: Path, master: str, setting: str, says: list[str]
) -> None:
    properties = {"spark.hadoop.fs.s3a.secret.key": SECRET, setting: "lots"}
    lines = [f'"{name}" = "{value}"' for name, value in properties.items()]
    settings = tmp_path / "settings.toml"
    settings.write_text("\n".join(["[spark]", f'master = "{master}"', *lines]), encoding="utf-8")
    command = [sys.executable, "-m", "offsetlake.cli", "run", "--config", settings]
    done = subprocess.run(
        [*command, "--log", FIXTURES / "real-log"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2
    assert [text for text in says if text not in line] == []
    assert SECRET not in done.stdout + done.stderr


def test_secrets_are_removed_from_messages() -> None:
    properties = {"spark.remote": "sc://h:1/;token=t0ken;user_id=u", "spark.ssl.keyPassword": "pass1"}
    text = "cannot connect to sc://h:1/;token=t0ken;user_id=u with pass1"
    assert redacted(text, properties) == "cannot connect to sc://h:1/;***;*** with ***"
