"""Runs Kafka's command-line tools, several in one JVM, because starting a JVM takes seconds."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import pyspark
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError

_JARS = Path(__file__).parents[3] / ".jars"
OLDEST, OLDER, NEWER = "3.9.1", "4.1.1", "4.2.0"
"""The versions of Kafka of most tests; only benchmarks use the oldest."""

IN_FRONT_OF = ("4.0.0", OLDER, NEWER, "4.3.1", "4.4.0")
"""A version of each minor version that a node of a cluster is tested with."""

JARS = {version: _JARS / f"kafka-{version}" for version in IN_FRONT_OF} | {
    OLDEST: _JARS / "oldest",
    OLDER: _JARS / "broker",
    NEWER: _JARS / "peer",
}
"""The jars of Kafka by version."""

_MIRROR_JARS = _JARS / "mirror"
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
JVM_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_UTF8 = ("-Dfile.encoding=UTF-8", "-Dsun.stdout.encoding=UTF-8")
_SPARK_JARS = Path(pyspark.__file__).parent / "jars"


class Said(NamedTuple):
    """The exit code and the output of a tool."""

    code: int
    out: str
    err: str


def java(
    main: str, *arguments: str, version: str = OLDER, classes: Path | None = None, log_level: str = "WARN"
) -> list[str]:
    """Return the command that runs a main class of Kafka's jars, or of a folder of compiled classes.

    By default, warnings and errors are logged to stdout.
    """
    path = _class_path(version) if classes is None else f"{classes}:{_class_path(version)}"
    return ["java", *JVM_FLAGS, *_UTF8, f"-Dlog4j2.level={log_level}", "-cp", path, main, *arguments]


def mirror_maker(properties: str) -> list[str]:
    """Return the command that runs MirrorMaker 2 with a file of properties."""
    if not _MIRROR_JARS.is_dir():
        raise FileNotFoundError(f"No jars of MirrorMaker 2 in {_MIRROR_JARS}: `make .jars/mirror/.ready` fetches them.")
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    path = ":".join([*_log_binding(), f"{_MIRROR_JARS}/*"])
    return ["java", *JVM_FLAGS, *_UTF8, "-Dlog4j2.level=WARN", "-cp", path, main, properties]


def compile_java(source: Path, classes: Path, version: str = OLDER) -> None:
    """Compile a file that uses Kafka's classes into a folder."""
    command = ["javac", "-Xlint:all,-processing", "-cp", _class_path(version), "-d", str(classes), str(source)]
    subprocess.run(command, check=True)


def group_command(bootstrap: str, *arguments: str) -> Said:
    """Run kafka-consumer-groups."""
    return _tools().run(GROUP_COMMAND, "--bootstrap-server", bootstrap, *arguments)


def kafka_tool(main: str, *arguments: str) -> Said:
    """Run the tool with a main class."""
    return _tools().run(main, *arguments)


def dump_log_command(*arguments: str) -> Said:
    """Run kafka-dump-log."""
    return _tools().run("kafka.tools.DumpLogSegments", *arguments)


class _Tools:
    """A JVM that runs until this process ends; it captures the output of tools and prevents their exit."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._gateway, self._java = gateway, gateway.jvm
        self._out, self._err = (self._java.java.io.ByteArrayOutputStream() for _ in range(2))
        self._java.System.setOut(self._java.java.io.PrintStream(self._out, True, "UTF-8"))
        self._java.System.setErr(self._java.java.io.PrintStream(self._err, True, "UTF-8"))
        leaving = self._java.Class.forName("org.apache.kafka.common.utils.Exit")
        procedure = leaving.getDeclaredField("NOOP_EXIT_PROCEDURE")  # raises
        procedure.setAccessible(True)
        self._java.org.apache.kafka.common.utils.Exit.setExitProcedure(procedure.get(None))

    @classmethod
    def start(cls) -> Self:
        (jar,) = _SPARK_JARS.glob("py4j-*.jar")
        options = [*JVM_FLAGS, *_UTF8, "-Dlog4j2.level=OFF"]  # what one tool's threads log late is not the next one's
        launch = JavaGateway.launch_gateway
        return cls(launch(jarpath=str(jar), classpath=_class_path(OLDER), javaopts=options, die_on_exit=True))

    def run(self, main: str, *arguments: str) -> Said:
        given = self._gateway.new_array(self._java.String, len(arguments))
        for at, argument in enumerate(arguments):
            given[at] = argument
        of: Any = self._java
        for name in main.split("."):
            of = getattr(of, name)
        self._out.reset()
        self._err.reset()
        code = 0
        try:
            of.main(given)
        except Py4JError:  # it was to end with an error, of which it has told
            # Not Py4JJavaError: once there is a Spark session, PySpark converts the errors of every gateway of the
            # process, and asks the JVM of its session about them, which fails.
            code = 1
        return Said(code, self._out.toString("UTF-8"), self._err.toString("UTF-8"))


@cache
def _tools() -> _Tools:
    return _Tools.start()


def _class_path(version: str) -> str:
    folder = JARS[version]
    if not folder.is_dir():
        target = f".jars/{folder.name}/.ready"
        raise FileNotFoundError(f"No jars of Kafka {version} in {folder}: `make {target}` fetches them.")
    if version == OLDEST:  # its jars contain a binding
        return f"{folder}/*"
    # Kafka's published jars log nowhere without a binding; Spark brings one that fits.
    return ":".join([*_log_binding(), f"{folder}/*"])


def _log_binding() -> list[str]:
    kinds = ("slf4j-api-2", "log4j-slf4j2-impl-", "log4j-api-", "log4j-core-")
    return [str(path) for kind in kinds for path in _SPARK_JARS.glob(f"{kind}*.jar")]
