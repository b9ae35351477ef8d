"""The one place that opens Spark sessions: of a Spark Connect server, of spark-submit, or of a Spark started here.

A Spark that is started here has the settings of `conf/spark.conf`, and what its JVM writes is kept from the terminal. A
session of Spark Connect is opened where Spark's own configuration asks for it: `SPARK_REMOTE` or `spark.remote`.
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
TAIL = 4000  # bytes of the JVM's output that are shown when something went wrong

_engine_output = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - lives as long as the JVM, which writes to it


def build_session(app_name: str, extra: dict[str, str] | None = None) -> SparkSession:
    """Return the active session, one of a Connect server, of spark-submit or of a Spark started here.

    The log is registered in it as a data source. Raises BadRequest if the Connect server cannot be used, if Java does
    not start, or if the jars of Delta are neither given to spark-submit nor found.
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
    if not is_remote():  # the log level of a Connect server is its operator's decision
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
            f"the Spark Connect server {server} cannot be used: {error}; start it, or correct {REMOTE_VARIABLE}"
        ) from error
    if isinstance(loader := sys.modules[__name__].__loader__, zipimporter):
        spark.addArtifacts(loader.archive, pyfile=True)  # the wheel this process runs from, for the tasks
    return spark


def _settings() -> dict[str, str]:
    """Read `conf/spark.conf`: a name and a value a line, `#` begins a comment."""
    lines = (line.split("#")[0].split(None, 1) for line in resource("conf", "spark.conf").read_text().splitlines())
    return {line[0]: line[1].strip() for line in lines if len(line) == 2}


def _start_context(app_name: str, settings: dict[str, str]) -> None:
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM, and what it was told wins
        SparkContext._ensure_initialized()  # noqa: SLF001 - or SparkConf would not see what it was told
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
            # A JVM that an earlier session of this process has left behind is used again, as pyspark does.
            SparkContext(conf=conf, gateway=SparkContext._gateway or _launch(conf))  # noqa: SLF001
    if threading.current_thread() is threading.main_thread():
        # Spark's handler calls the JVM in the middle of whatever call the signal has hit, and both calls fail.
        signal.signal(signal.SIGINT, on_ctrl_c)


def _launch(conf: SparkConf) -> JavaGateway:
    with _ctrl_c_held():
        try:
            return launch_gateway(conf, {"stdout": _engine_output, "stderr": _engine_output})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise BadRequest(
                f"Spark's JVM did not start: {engine_tail() or error}; "
                "it needs Java 17 or 21, by JAVA_HOME or on the PATH"
            ) from error


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Hold Ctrl-C back: a JVM that is given up before it has told its port never ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed.is_set():
            signal.raise_signal(signal.SIGINT)


def _jars() -> str:
    folder = Path(os.environ.get(JARS_VARIABLE, Path(__file__).parents[3] / ".jars" / "spark"))
    if not any(folder.glob("delta-spark_*.jar")):
        raise BadRequest(f"no Delta jars in {folder}: run `make setup`, or name their folder in {JARS_VARIABLE}")
    return f"{folder}/*"


def engine_tail() -> str:
    """Return the end of what Spark's JVM has written to its standard output and error."""
    handle = _engine_output.fileno()
    size = os.fstat(handle).st_size
    return os.pread(handle, TAIL, max(0, size - TAIL)).decode(errors="replace").strip()
