"""The one place that starts Spark, from `conf/spark.conf`, and keeps what its JVM writes away from the terminal."""

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib.resources import as_file
from pathlib import Path
from types import TracebackType
from typing import Self

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from offsetlake.errors import BadRequest, OffsetlakeError
from offsetlake.log.spark_source import CommitLogSource
from offsetlake.util.resources import resource

JARS_VARIABLE = "OFFSETLAKE_JARS"
TAIL = 4000  # bytes of the JVM's output that are shown when something went wrong

_engine_output = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - lives as long as the JVM, which writes to it

Advance = Callable[[int, int, str], None]
_WATCH_SECONDS = 0.5


class LazySession:
    """A Spark session that starts when it is first called for; `seconds` is how long that took, 0 until then.

    As a context it adds to an error of Spark's, as a note, what the JVM has written.
    """

    def __init__(self, app_name: str, say: Callable[[str], None], advance: Advance = lambda *_: None) -> None:
        self._app_name, self._say, self._advance = app_name, say, advance
        self._over = threading.Event()
        self.seconds = 0.0

    def __call__(self) -> SparkSession:
        """Give the session; raises what `build_session` raises."""
        return self._session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if failure and not isinstance(failure, OffsetlakeError) and (written := _engine_tail()):
            failure.add_note(f"Spark's JVM wrote:\n{written}")

    @cached_property
    def _session(self) -> SparkSession:
        self._say("starting Spark")
        began = time.monotonic()
        session = build_session(self._app_name)
        self.seconds = time.monotonic() - began
        self._say("running Spark tasks")
        threading.Thread(target=self._watch, args=(session,), daemon=True, name="progress").start()
        return session

    def _watch(self, session: SparkSession) -> None:
        """Report how many tasks of the stages that run are done, until the context ends."""
        tracker = session.sparkContext.statusTracker()
        while not self._over.wait(_WATCH_SECONDS):
            try:
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            except (Py4JError, OSError):  # the JVM ends, and with it what there is to report
                return
            running = [stage for stage in stages if stage]
            if total := sum(stage.numTasks for stage in running):
                self._advance(sum(stage.numCompletedTasks for stage in running), total, "tasks")


def build_session(app_name: str, extra: dict[str, str] | None = None) -> SparkSession:
    """Start Spark, or join the session spark-submit has begun, with the log registered as a source.

    Raises BadRequest where the jars of Delta are neither given to spark-submit nor found, or Java does not start.
    """
    settings = _settings() | (extra or {})
    if SparkSession.getActiveSession() is None:
        _start_context(app_name, settings)
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel(settings["spark.log.level"])
    spark.dataSource.register(CommitLogSource)
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
                f"Spark's JVM did not start: {_engine_tail() or error}; "
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
    folder = Path(os.environ.get(JARS_VARIABLE, Path(__file__).parents[2] / ".jars" / "spark"))
    if not any(folder.glob("delta-spark_*.jar")):
        raise BadRequest(f"no Delta jars in {folder}: run `make setup`, or name their folder in {JARS_VARIABLE}")
    return f"{folder}/*"


def _engine_tail() -> str:
    """Give the end of what Spark's JVM has written to its standard output and error; empty where nothing was."""
    handle = _engine_output.fileno()
    size = os.fstat(handle).st_size
    return os.pread(handle, TAIL, max(0, size - TAIL)).decode(errors="replace").strip()
