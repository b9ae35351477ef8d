"""Plans and executes changes in a thread, one at a time, and keeps the newest ones to show."""

import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from offsetlake.errors import BadRequest, OffsetlakeError, Refused
from offsetlake.lake.data_files import naming_damage
from offsetlake.lake.foreign.guard import open_verified
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.location import Location
from offsetlake.log.address import LogAddress
from offsetlake.log.readiness import check_writable
from offsetlake.pipeline import runner
from offsetlake.pipeline.changes.execute import count_of, with_outcome
from offsetlake.rules.reduction import KEY
from offsetlake.web.console.changing.forms import ChangeRequest, Requested
from offsetlake.web.console.pages import as_sentence

LOG = logging.getLogger(__name__)
MAX_KEPT = 20
MAX_CHECK_SECONDS = 1.0
_THREAD = "change"
_OF_THE_TIME = {"run_id", "commit_timestamp", "judged_timestamp"}
"""The columns in which two plans of the same change differ."""

_CHANGED = "The offsets changed after the plan was made, and nothing was written. This is the new plan."
_BUSY = "Another change is being planned or executed in this console: wait until it has ended."
_DEFECT = "An unexpected error, which is in the log of the console. `offsetlake runs` lists what was done."

MayChange = Callable[[str], bool]
"""Returns whether the requester may change a group."""

Say = Callable[[str], None]
Decide = Callable[[Lake, Say], tuple[pa.Table, int]]
"""Does what was requested; returns the rows with their outcomes, and the run to undo, 0 if it cannot be undone."""


class Stage(StrEnum):
    """How far a change is."""

    PLANNING = "planning"
    PLANNED = "planned"
    EXECUTING = "executing"
    EXECUTED = "executed"
    FAILED = "failed"

    @property
    def is_running(self) -> bool:
        """Whether work is under way."""
        return self in {Stage.PLANNING, Stage.EXECUTING}


@dataclass(slots=True)
class Work:
    """One change.

    | Field   | Description |
    |---------|-------------|
    | id      | Its name in addresses. |
    | owner   | The principal that requested it. |
    | request | What is requested. |
    | stage   | How far it is. |
    | step    | The current step, or what the reader has to know: an error, or that the plan changed. |
    | rows    | The plan or, when executed, the outcomes. |
    | run_id  | The run to undo; 0 if nothing was executed. |
    """

    id: str
    owner: str
    request: Requested
    stage: Stage = Stage.PLANNING
    step: str = ""
    rows: pa.Table | None = None
    run_id: int = 0

    def count(self, outcome: str) -> int:
        """Return the number of rows with an outcome."""
        return 0 if self.rows is None else count_of(self.rows, outcome)


class _PlanChanged(Refused):
    """The plan is not the one that was shown."""


class Workbench:
    """Changes of one lake and its log; at most one is planned or executed at a time."""

    def __init__(self, location: Location, log: LogAddress) -> None:
        self.log = log
        self._location = location
        self._kept: OrderedDict[str, Work] = OrderedDict()
        self._lock = threading.Lock()
        self._checks, self._check, self._problem = ThreadPoolExecutor(1, "log-check"), Future[None](), ""
        self._check.set_result(None)

    def log_problem(self) -> str:
        """Return why nothing can be written to the log now; empty if it can.

        A broker that does not respond is known only after its timeout. The answer of the check before is returned if a
        check takes longer than MAX_CHECK_SECONDS.
        """
        with self._lock:
            if self._check.done():
                self._check = self._checks.submit(self._check_log)
            check = self._check
        wait([check], MAX_CHECK_SECONDS)
        return self._problem

    def _check_log(self) -> None:
        try:
            check_writable(self.log)
        except OffsetlakeError as error:
            self._problem = str(error)
        else:
            self._problem = ""

    def find(self, id_: str, owner: str) -> Work | None:
        """Return a change of a principal; None if there is none with this id, or it is too old."""
        work = self._kept.get(id_)
        return work if work is not None and work.owner == owner else None

    def plan(self, request: ChangeRequest, owner: str, may_change: MayChange) -> Work:
        """Begin to plan a change; raise BadRequest if another one is under way."""
        work = self._new(request, owner, Stage.PLANNING)
        self._start(work, lambda lake: self._plan(work, request, lake, may_change))
        return work

    def decide(self, request: Requested, owner: str, run: Decide) -> Work:
        """Begin what needs no further plan; raise BadRequest if another change is under way."""
        work = self._new(request, owner, Stage.EXECUTING)

        def decide(lake: Lake) -> None:
            work.rows, work.run_id = run(lake, _sayer(work))
            work.step, work.stage = "", Stage.EXECUTED

        self._start(work, decide)
        return work

    def execute(self, work: Work, requester: str | None, may_change: MayChange) -> None:
        """Begin to execute a plan, if it has not begun yet; raise BadRequest if another change is under way."""
        with self._lock:
            request = work.request
            if work.stage is not Stage.PLANNED or not isinstance(request, ChangeRequest):
                return  # submitted twice
            self._refuse_second()
            work.stage, work.step = Stage.EXECUTING, ""
        self._start(work, lambda lake: self._execute(work, request, lake, requester, may_change))

    def _new(self, request: Requested, owner: str, stage: Stage) -> Work:
        work = Work(secrets.token_urlsafe(12), owner, request, stage)
        with self._lock:
            self._refuse_second()
            self._kept[work.id] = work
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return work

    def _refuse_second(self) -> None:
        if any(work.stage.is_running for work in self._kept.values()):
            raise BadRequest(_BUSY)

    def _start(self, work: Work, run: Callable[[Lake], None]) -> None:
        def guarded() -> None:
            try:
                with naming_damage():
                    run(open_verified(self._location))
            except OffsetlakeError as error:
                work.step, work.stage = as_sentence(str(error)), Stage.FAILED
            except BaseException:
                LOG.exception("A change of offsets failed")
                work.step, work.stage = _DEFECT, Stage.FAILED
                raise

        threading.Thread(target=guarded, name=_THREAD).start()

    def _plan(self, work: Work, request: ChangeRequest, lake: Lake, may_change: MayChange) -> None:
        plan = _limited(request, may_change)
        work.rows = runner.plan_change(lake, self.log, plan, _sayer(work))
        work.step, work.stage = "", Stage.PLANNED

    def _execute(
        self, work: Work, request: ChangeRequest, lake: Lake, requester: str | None, may_change: MayChange
    ) -> None:
        """Execute exactly the plan that was shown; if it is another one now, show that."""
        shown = work.rows
        limited = _limited(request, may_change)

        def plan(lake: Lake) -> pa.Table:
            rows = limited(lake)
            newer = with_outcome(rows).sort_by([(name, "ascending") for name in KEY])
            if shown is None or not _is_same(shown, newer):
                work.rows = newer
                raise _PlanChanged(_CHANGED)
            return rows

        try:
            rows, run = runner.execute_change(lake, self.log, request.job, request.table, plan, _sayer(work), requester)
        except _PlanChanged as error:
            work.step, work.stage = str(error), Stage.PLANNED
        else:
            work.rows, work.run_id, work.step = rows, run.run_id, ""
            work.stage = Stage.EXECUTED


def await_changes() -> None:
    """Wait until no change is planned or executed: the end of the process would interrupt it."""
    for thread in threading.enumerate():
        if thread.name == _THREAD:
            thread.join()


def _sayer(work: Work) -> Say:
    def say(step: str) -> None:
        work.step = step

    return say


def _limited(request: ChangeRequest, may_change: MayChange) -> runner.Plan:
    """Return the plan with only the group of the request or, of an undo, the groups that the requester may change."""

    def plan(lake: Lake) -> pa.Table:
        rows = request.plan(lake)
        names = rows["group_id"].cast(pa.string()).to_pylist()
        wanted = [name == request.group if request.group else may_change(name) for name in names]
        rows = rows.filter(pa.array(wanted, pa.bool_()))
        if names and not rows.num_rows:
            if request.group:
                raise BadRequest(f"There is no group {request.group!r} in the lake {lake.location}.")
            raise BadRequest("This changes no offset of a group that you may change.")
        return rows

    return plan


def _is_same(shown: pa.Table, newer: pa.Table) -> bool:
    names = [name for name in shown.column_names if name not in _OF_THE_TIME]
    return shown.column_names == newer.column_names and bool(shown.select(names).equals(newer.select(names)))
