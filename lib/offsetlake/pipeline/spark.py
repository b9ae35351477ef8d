"""Spark sessions: of a Spark Connect server, of spark-submit, or of a Spark that this process starts.

A Spark that this process starts has the settings of `conf/spark.conf` and of the table `[spark]` of the settings, which
also names its master; the output of its JVM is not shown in the terminal. With a local master, its JVM maps the archive
of classes that `class_archive.py` makes, if there is one. A session of Spark Connect is opened if the
table `[spark]` has a `remote`, or if Spark's own configuration requires it, by `SPARK_REMOTE`.
"""

import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file
from pathlib import Path
from urllib.parse import urlsplit
from zipimport import zipimporter

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession, is_remote

from offsetlake.errors import BadRequest
from offsetlake.log.spark_source import CommitLogSource
from offsetlake.util.resources import resource

MASTER, REMOTE = "spark.master", "spark.remote"
REMOTE_VARIABLE = "SPARK_REMOTE"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
MAX_TAIL_BYTES = 4000  # of the JVM's output, for error messages
CLASS_ARCHIVE = Path(sys.prefix, "share", "offsetlake", "spark-classes.jsa")
"""The archive of Spark's classes: in the environment, so that only who installs packages can write to it."""

_LOCAL_ONLY = ("spark.driver.bindAddress", "spark.driver.host", JAVA_OPTIONS)
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)  # the default of spark.redaction.regex

_engine_output = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - open as long as the JVM, which writes to it


def build_session(app_name: str, properties: Mapping[str, str] | None = None) -> SparkSession:
    """Return the active session, or open one: of a Connect server, of spark-submit or of a Spark that is started.

    The log is registered in it as a data source.

    Args:
        app_name: The name of the application.
        properties: Spark properties; they override `conf/spark.conf`, and those of spark-submit override them.
            `spark.master` is by default `local[*]`; `spark.remote` is the address of a Connect server.

    Returns:
        The session.

    Raises:
        BadRequest: The Connect server cannot be used, Java does not start, or Spark does not start with these
            properties.

    """
    given = dict(properties or {})
    remote = given.get(REMOTE) or ("" if MASTER in given else os.environ.get(REMOTE_VARIABLE, ""))
    if SparkSession.getActiveSession() is not None:
        spark = SparkSession.builder.getOrCreate()
    elif remote:
        spark = _connect(remote, given)
    else:
        spark = _start_context(app_name, given)
    if not is_remote():  # the operator of a Connect server sets its log level
        spark.sparkContext.setLogLevel((_defaults() | given)["spark.log.level"])
    spark.dataSource.register(CommitLogSource)
    return spark


def _connect(remote: str, properties: Mapping[str, str]) -> SparkSession:
    try:
        spark = SparkSession.builder.config(map=dict(properties)).remote(remote).getOrCreate()
        spark.version  # noqa: B018 - the first request to the server
    except PySparkException as error:
        reason = redacted(str(error), {REMOTE: remote})
        raise BadRequest(
            f"The Spark Connect server {urlsplit(remote).netloc} cannot be used: {reason}. "
            f"Start it, or correct `remote` in the table [spark] of the settings, or {REMOTE_VARIABLE}."
        ) from error
    if isinstance(loader := sys.modules[__name__].__loader__, zipimporter):
        spark.addArtifacts(loader.archive, pyfile=True)  # the tasks need the wheel that this process runs from
    return spark


def _defaults() -> dict[str, str]:
    """Return the settings of `conf/spark.conf`: one name and value per line, `#` starts a comment."""
    lines = (line.split("#")[0].split(None, 1) for line in resource("conf", "spark.conf").read_text().splitlines())
    return {line[0]: line[1].strip() for line in lines if len(line) == 2}


def _start_context(app_name: str, properties: Mapping[str, str]) -> SparkSession:
    interrupt_handler = signal.getsignal(signal.SIGINT)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if submitted:  # spark-submit has started the JVM, and its settings win
        SparkContext._ensure_initialized()  # noqa: SLF001 - otherwise SparkConf misses its settings
        conf = SparkConf()
    else:
        conf = SparkConf(loadDefaults=False)
    for name, value in {"spark.app.name": app_name, MASTER: "local[*]", **properties}.items():
        conf.setIfMissing(name, value)
    master = conf.get(MASTER, "")
    for name, value in _defaults().items():
        if name not in _LOCAL_ONLY or is_local(master):
            conf.setIfMissing(name, value)
    try:
        if submitted:
            SparkContext(conf=conf)
        else:
            _start_jvm(conf)
        return SparkSession.builder.getOrCreate()  # fails if Spark has given up connecting to the cluster
    except (Py4JJavaError, PySparkException) as error:
        reason = str(error.java_exception if isinstance(error, Py4JJavaError) else error).splitlines()[0]
        errors = [line for line in engine_tail(properties).splitlines() if " ERROR " in line]
        raise BadRequest(
            f"Spark did not start with the master {master}: {redacted(' '.join([reason, *errors[-1:]]), properties)} "
            "Correct the table [spark] of the settings, or start the cluster."
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            # Spark's handler would call the JVM during the call that the signal interrupted, and both would fail.
            signal.signal(signal.SIGINT, interrupt_handler)


def is_local(master: str) -> bool:
    """Check whether Spark with this master runs on this machine only, so that loopback addresses suffice."""
    return master.startswith("local")


def _start_jvm(conf: SparkConf) -> None:
    """Start a JVM with a SparkContext; like pyspark, reuse the JVM of an earlier session of this process."""
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if python := conf.get("spark.pyspark.python"):
        os.environ["PYSPARK_PYTHON"] = python
    with as_file(resource("conf", "log4j2.properties")) as logging:
        options = [f'-Dlog4j2.configurationFile="{logging}"', _archive_options(conf), conf.get(JAVA_OPTIONS, "")]
        conf.set(JAVA_OPTIONS, " ".join(filter(None, options)))
        SparkContext(conf=conf, gateway=SparkContext._gateway or _launch(conf))  # noqa: SLF001


def _archive_options(conf: SparkConf) -> str:
    """Return the options of a JVM that maps the archive of classes, or ignores it without a warning if it differs."""
    if not is_local(conf.get(MASTER, "")) or not CLASS_ARCHIVE.exists():
        return ""
    return f'-XX:SharedArchiveFile="{CLASS_ARCHIVE}" -Xshare:auto -Xlog:cds*=off'


def _launch(conf: SparkConf) -> JavaGateway:
    """Start a JVM. It reads its properties from an unnamed file: every user can see the command line of a process."""
    inherited = os.environ.get(_SUBMIT_ARGUMENTS)
    properties = dict(conf.getAll())
    with _interrupts_deferred(), tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        file.writelines(f"{name} {_escaped(value)}\n" for name, value in properties.items())
        file.flush()
        os.environ[_SUBMIT_ARGUMENTS] = (
            f"--properties-file /dev/fd/{file.fileno()} --load-spark-defaults {inherited or 'pyspark-shell'}"
        )
        streams = {"stdout": _engine_output, "stderr": _engine_output, "pass_fds": (file.fileno(),)}
        try:
            return launch_gateway(popen_kwargs=streams)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise BadRequest(
                f"Spark's JVM did not start: {engine_tail(properties) or error}. "
                "Install Java 17 or 21, and set JAVA_HOME or add it to the PATH, or correct the table [spark] of the "
                "settings."
            ) from error
        finally:
            del os.environ[_SUBMIT_ARGUMENTS]
            if inherited is not None:
                os.environ[_SUBMIT_ARGUMENTS] = inherited


def _escaped(value: str) -> str:
    """Return a value as java.util.Properties reads it from a file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


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


def engine_tail(properties: Mapping[str, str]) -> str:
    """Return the end of the output of Spark's JVM, standard output and standard error, without secrets."""
    handle = _engine_output.fileno()
    size = os.fstat(handle).st_size
    tail = os.pread(handle, MAX_TAIL_BYTES, max(0, size - MAX_TAIL_BYTES)).decode(errors="replace").strip()
    return redacted(tail, properties)


def redacted(text: str, properties: Mapping[str, str]) -> str:
    """Return a text without the secrets of Spark properties: values of secret names, and parameters of an address."""
    secrets = [value for name, value in properties.items() if _SECRET.search(name)]
    secrets += properties.get(REMOTE, "").split(";")[1:]
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return text
