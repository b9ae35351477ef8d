"""The content of the report of a lake, live: computed anew in the background when a table has changed."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from offsetlake.errors import OffsetlakeError
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.web.console import forked
from offsetlake.web.console.answers import PageAnswers
from offsetlake.web.console.live import child

_TOO_LARGE = (
    "The content of this page needs more memory than a query may use: `offsetlake report --group PATTERN` writes a "
    "report about some groups."
)
_WAITING = "waiting for other computations"
_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    """The answer of `child`: the fields of a report, or `checks`.

    | Field        | Description |
    |--------------|-------------|
    | introduction | Sentences about the lake and the period of charts. |
    | facts        | The key figures. |
    | sections     | The fields of each `report.page.Section`; the first is about what needs attention. |
    | checks       | The result of each expectation: suite, expectation, table, success, observed. |
    """

    introduction: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    sections: Sequence[_Row] = ()
    checks: Sequence[_Row] = ()


class ComputationProgress(NamedTuple):
    """How far a computation is: its step, its duration so far, and that of the last one, in s; None if unknown."""

    step: str
    seconds: int
    last_seconds: int | None


class LiveContent:
    """Computes a part, `report` or `checks`, for the newest versions of the tables, when it is requested.

    The child process bounds the memory of this one; it gives way to those for which visitors wait.
    """

    def __init__(self, answers: PageAnswers, part: str, lake: str, policy: RetentionPolicy) -> None:
        self._answers, self._lock = answers, threading.Lock()
        self._request = {"part": part, "lake": lake, "policy": asdict(policy)}
        self._computed: tuple[int, ...] = ()
        self._step, self._began = "", 0.0
        self._last_seconds: int | None = None
        self._live: LiveAnswer | None = None
        self._error: OffsetlakeError | None = None

    def get(self) -> tuple[LiveAnswer | None, ComputationProgress | None]:
        """Return the newest content, None if there is none yet, and how far newer content is; None if there is none.

        Raises the error of the computation for the newest versions: it is not repeated until a table has changed.
        """
        versions = (*self._answers.open().versions().values(),)
        with self._lock:
            if versions != self._computed and not self._step:
                self._step, self._began, self._error = _WAITING, time.monotonic(), None
                threading.Thread(target=self._compute, args=(versions,), name="live-content", daemon=True).start()
            if self._error is not None:
                raise self._error
            return self._live, self._progress()

    def _progress(self) -> ComputationProgress | None:
        seconds = round(time.monotonic() - self._began)
        return ComputationProgress(self._step, seconds, self._last_seconds) if self._step else None

    def _announce(self, step: str) -> None:
        with self._lock:
            self._step = step

    def _compute(self, versions: tuple[int, ...]) -> None:
        live, error = None, None
        try:
            found = forked.run_in_background(
                child.answer, self._request, _TOO_LARGE, is_awaited=False, announce=self._announce
            )
            live = LiveAnswer(**found)
        except OffsetlakeError as caught:
            error = caught
        with self._lock:
            self._step, self._computed, self._error = "", versions, error
            self._last_seconds = round(time.monotonic() - self._began)
            self._live = live or self._live
