"""A Spark session that a job opens only when it has work for Spark; until then Spark is not imported."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from offsetlake.errors import OffsetlakeError
from offsetlake.util.extras import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Advance = Callable[[int, int, str], None]
_APP_NAME = "offsetlake"
_POLL_INTERVAL_SECONDS = 0.5


class LazySession:
    """Opens a Spark session on the first call; `seconds` is how long that took, 0 before.

    As a context manager it adds the output of the JVM to an error of Spark, as a note.

    Args:
        properties: Spark properties, as for `build_session`.
        say: Called with a text for each step.
        advance: Called with the number of finished and of all Spark tasks.
    """

    def __init__(
        self, properties: Mapping[str, str], say: Callable[[str], None], advance: Advance = lambda *_: None
    ) -> None:
        self._properties, self._say, self._advance = properties, say, advance
        self._closed = threading.Event()
        self._close: Callable[[], str] = str
        self.seconds = 0.0

    def __call__(self) -> "SparkSession":
        """Return the session, opened if necessary; raise what `build_session` raises."""
        return self._session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        output = self._close()
        if failure and not isinstance(failure, OffsetlakeError) and output:
            failure.add_note(f"Output of Spark's JVM:\n{output}")

    @cached_property
    def _session(self) -> "SparkSession":
        require("jobs")
        from pyspark.sql import is_remote  # noqa: PLC0415 - few commands need Spark

        from offsetlake.pipeline import spark as sessions  # noqa: PLC0415 - as above

        self._say("starting Spark")
        start = time.monotonic()
        self._close = partial(sessions.engine_tail, self._properties)
        session = sessions.build_session(_APP_NAME, self._properties)
        self.seconds = time.monotonic() - start
        self._say("running Spark tasks")
        if is_remote():
            self._close = lambda: _release(session)
            session.registerProgressHandler(self._on_progress)
        else:
            threading.Thread(target=self._watch, args=(session,), daemon=True, name="progress").start()
        return session

    def _on_progress(self, stages: Iterable[Any] | None, **_: object) -> None:
        """Report the number of completed tasks of the running stages of a Connect server."""
        running = [stage for stage in stages or () if not stage.done]
        if total := sum(stage.num_tasks for stage in running):
            self._advance(sum(stage.num_completed_tasks for stage in running), total, "tasks")

    def _watch(self, session: "SparkSession") -> None:
        """Report the number of completed tasks of the running stages, until the context is left."""
        from py4j.protocol import Py4JError  # noqa: PLC0415 - of an extra

        tracker = session.sparkContext.statusTracker()
        while not self._closed.wait(_POLL_INTERVAL_SECONDS):
            try:
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            except (Py4JError, OSError):  # the JVM has exited
                return
            running = [stage for stage in stages if stage]
            if total := sum(stage.numTasks for stage in running):
                self._advance(sum(stage.numCompletedTasks for stage in running), total, "tasks")


def _release(session: "SparkSession") -> str:
    """Close the session of a Connect server, which would otherwise keep it for an hour; return no output."""
    session.stop()
    return ""
