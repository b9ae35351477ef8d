"""A Spark session that a job opens only when it has work for Spark; until then Spark is not imported."""

import threading
import time
from collections.abc import Callable, Iterable
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from py4j.protocol import Py4JError

from offsetlake.errors import OffsetlakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Advance = Callable[[int, int, str], None]
_WATCH_SECONDS = 0.5


class LazySession:
    """Opens a Spark session at the first call; `seconds` is how long that took, 0 until then.

    As a context manager it adds to an error of Spark, as a note, what the JVM has written.
    """

    def __init__(self, app_name: str, say: Callable[[str], None], advance: Advance = lambda *_: None) -> None:
        self._app_name, self._say, self._advance = app_name, say, advance
        self._over = threading.Event()
        self._end: Callable[[], str] = str
        self.seconds = 0.0

    def __call__(self) -> "SparkSession":
        """Return the session; raises what `build_session` raises."""
        return self._session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        written = self._end()
        if failure and not isinstance(failure, OffsetlakeError) and written:
            failure.add_note(f"Spark's JVM wrote:\n{written}")

    @cached_property
    def _session(self) -> "SparkSession":
        from pyspark.sql import is_remote  # noqa: PLC0415 - few commands need Spark

        from offsetlake.pipeline import spark as sessions  # noqa: PLC0415 - as above

        self._say("starting Spark")
        began = time.monotonic()
        self._end = sessions.engine_tail
        session = sessions.build_session(self._app_name)
        self.seconds = time.monotonic() - began
        self._say("running Spark tasks")
        if is_remote():
            self._end = lambda: _release(session)
            session.registerProgressHandler(self._on_progress)
        else:
            threading.Thread(target=self._watch, args=(session,), daemon=True, name="progress").start()
        return session

    def _on_progress(self, stages: Iterable[Any] | None, **_: object) -> None:
        """Report how many tasks of the running stages of a Connect server are done."""
        running = [stage for stage in stages or () if not stage.done]
        if total := sum(stage.num_tasks for stage in running):
            self._advance(sum(stage.num_completed_tasks for stage in running), total, "tasks")

    def _watch(self, session: "SparkSession") -> None:
        """Report how many tasks of the running stages are done, until the context ends."""
        tracker = session.sparkContext.statusTracker()
        while not self._over.wait(_WATCH_SECONDS):
            try:
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            except (Py4JError, OSError):  # the JVM ends, and with it what there is to report
                return
            running = [stage for stage in stages if stage]
            if total := sum(stage.numTasks for stage in running):
                self._advance(sum(stage.numCompletedTasks for stage in running), total, "tasks")


def _release(session: "SparkSession") -> str:
    """End the session of a Connect server, which would keep it until it has been idle for an hour."""
    session.stop()
    return ""
