"""Spark sessions: of a Spark Connect server, of spark-submit, or of a local Spark that this process starts.

A local Spark has the settings of `conf/spark.conf`, and the output of its JVM is not shown in the terminal. A session
of Spark Connect is opened if Spark's own configuration requires it, by `SPARK_REMOTE` or `spark.remote`.
"""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file
from pathlib import Path
from urllib.parse import urlsplit
from zipimport import zipimporter

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession, is_remote

from offsetlake.errors import BadRequest
from offsetlake.log.spark_source import CommitLogSource
from offsetlake.util.resources import resource

JARS_VARIABLE = "OFFSETLAKE_JARS"
REMOTE_VARIABLE = "SPARK_REMOTE"
MAX_TAIL_BYTES = 4000  # of the JVM's output, for error messages

_engine_output = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - open as long as the JVM, which writes to it


def build_session(app_name: str, extra: dict[str, str] | None = None) -> SparkSession:
    """Return the active session, or open one: of a Connect server, of spark-submit or of a local Spark.

    The log is registered in it as a data source. Raises BadRequest if the Connect server cannot be used, if Java does
    not start, or if the folder of the Delta jars for a local Spark contains none.
    """
    settings = _settings() | (extra or {})
    remote = settings.get("spark.remote", os.environ.get(REMOTE_VARIABLE))
    if SparkSession.getActiveSession() is not None:
        spark = SparkSession.builder.getOrCreate()
    elif remote:
        spark = _connect(remote)
    else:
        _start_context(app_name, settings)
        spark = SparkSession.builder.getOrCreate()
    if not is_remote():  # the operator of a Connect server sets its log level
        spark.sparkContext.setLogLevel(settings["spark.log.level"])
    spark.dataSource.register(CommitLogSource)
    return spark


def _connect(remote: str) -> SparkSession:
    try:
        spark = SparkSession.builder.remote(remote).getOrCreate()
        spark.version  # noqa: B018 - the first request to the server
    except PySparkException as error:
        server = urlsplit(remote).netloc or remote  # the rest of the address may be a token
        raise BadRequest(
            f"The Spark Connect server {server} cannot be used: {error}. Start it, or correct {REMOTE_VARIABLE}."
        ) from error
    if isinstance(loader := sys.modules[__name__].__loader__, zipimporter):
        spark.addArtifacts(loader.archive, pyfile=True)  # the tasks need the wheel that this process runs from
    return spark


def _settings() -> dict[str, str]:
    """Return the settings of `conf/spark.conf`: one name and value per line, `#` starts a comment."""
    lines = (line.split("#")[0].split(None, 1) for line in resource("conf", "spark.conf").read_text().splitlines())
    return {line[0]: line[1].strip() for line in lines if len(line) == 2}


def _start_context(app_name: str, settings: dict[str, str]) -> None:
    interrupt_handler = signal.getsignal(signal.SIGINT)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM, and its settings win
        SparkContext._ensure_initialized()  # noqa: SLF001 - otherwise SparkConf misses its settings
        conf = SparkConf()
        for name, value in settings.items():
            conf.setIfMissing(name, value)
        SparkContext(conf=conf)
    else:
        conf = SparkConf(loadDefaults=False).setAppName(app_name)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        with as_file(resource("conf", "log4j2.properties")) as logging:
            conf.setMaster("local[*]").set("spark.driver.extraClassPath", _jars())
            conf.set("spark.driver.extraJavaOptions", f'-Dlog4j2.configurationFile="{logging}"')
            conf.setAll(list(settings.items()))
            # Like pyspark, reuse the JVM of an earlier session of this process.
            SparkContext(conf=conf, gateway=SparkContext._gateway or _launch(conf))  # noqa: SLF001
    if threading.current_thread() is threading.main_thread():
        # Spark's handler would call the JVM during the call that the signal interrupted, and both calls would fail.
        signal.signal(signal.SIGINT, interrupt_handler)


def _launch(conf: SparkConf) -> JavaGateway:
    with _interrupts_deferred():
        try:
            return launch_gateway(conf, {"stdout": _engine_output, "stderr": _engine_output})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise BadRequest(
                f"Spark's JVM did not start: {engine_tail() or error}. "
                "Install Java 17 or 21, and set JAVA_HOME or add it to the PATH."
            ) from error


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Defer Ctrl-C: if the start of a JVM is interrupted before it reports its port, the JVM never exits."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupted = threading.Event()
    handler = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if interrupted.is_set():
            signal.raise_signal(signal.SIGINT)


def _jars() -> str:
    folder = Path(os.environ.get(JARS_VARIABLE, Path(__file__).parents[3] / ".jars" / "spark"))
    if not any(folder.glob("delta-spark_*.jar")):
        raise BadRequest(f"No Delta jars in {folder}: run `make setup`, or set {JARS_VARIABLE} to their folder.")
    return f"{folder}/*"


def engine_tail() -> str:
    """Return the end of the output of Spark's JVM, standard output and standard error."""
    handle = _engine_output.fileno()
    size = os.fstat(handle).st_size
    return os.pread(handle, MAX_TAIL_BYTES, max(0, size - MAX_TAIL_BYTES)).decode(errors="replace").strip()
