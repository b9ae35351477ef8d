"""The forms of changes: what each requests, and the command that makes the same change."""

import re
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import pyarrow as pa

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.cluster.admin_client import cluster_admin
from offsetlake.pipeline.changes import reset as resets
from offsetlake.pipeline.changes.cleanup import plan_cleanup
from offsetlake.pipeline.changes.restore import restore_as_of, restore_run
from offsetlake.pipeline.changes.targets import Scope
from offsetlake.pipeline.runner import Plan
from offsetlake.queries.history.before import parse_position
from offsetlake.util.times import is_relative, now_ms, to_iso, to_ms
from offsetlake.web.console.access import Submission

KINDS: Mapping[str, str] = {
    "restore": "Return to earlier offsets",
    "reset": "Reset offsets",
    "undelete": "Restore deleted offsets",
    "cleanup": "Delete",
}
"""The forms with their titles."""

KINDS_OF_SHARE: Mapping[str, str] = {"restore": "Return to earlier start offsets", "cleanup": "Delete"}
"""Those of share groups, which have start offsets instead of committed ones."""

STDIN = "/dev/stdin"
"""The file from which commands read rows that pages print below them."""

UNDO = "undo"
STRATEGIES: Mapping[str, str] = {
    "to_offset": "to an offset",
    "shift_by": "by a number of records",
    "to_earliest": "to the log start offset",
    "to_latest": "to the log end offset",
    "to_datetime": "to the first record from a time on",
}
"""The strategies of the form for resets, with their descriptions."""

OF_CLUSTER = frozenset({"to_earliest", "to_latest", "to_datetime"})
"""Those that need the log start and end offsets, which only a cluster knows."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_PARTITIONS = re.compile(r"[0-9]{1,9}( *, *[0-9]{1,9})*")
_MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Requested:
    """What a visitor requested.

    | Field | Description |
    |-------|-------------|
    | title | What it is about. |
    | table | The table of its rows: `tombstones` or `alterations`; empty for rows of audits. |
    | group | The only group that it changes; empty for changes of several groups, which the visitor administers. |
    | commands | For each command that does the same together: the words after `offsetlake`, without the lake and the log. |
    | inputs | For each of these commands, the lines that it reads from STDIN; empty for none. |
    | review | The list of the review that it comes from; empty for a form. |
    | no_undo | Why no undo of the run is planned; empty if one is. |
    | decided | What was decided, as the heading of the result, if that changes no offset; otherwise empty. |
    | decisions | The list of the review that contains all such decisions. |
    """  # noqa: E501 - a row of a table

    title: str
    table: str
    group: str
    commands: tuple[tuple[str, ...], ...]
    review: str = ""
    no_undo: str = ""
    decided: str = ""
    decisions: str = "rejected"
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequest(Requested):
    """A requested change, with the job that its run is recorded as, and a function that makes its plan."""

    job: str
    plan: Plan


def read_form(form: Submission, log: LogAddress) -> ChangeRequest:
    """Return what a form requests; raise BadRequest if a field is invalid."""
    kind, group, topic = form.text("kind"), form.fields.get("group", [""])[0], form.text("topic")
    if kind == UNDO:
        return _undo(_number(form, "run", "the number of a run", 1), log)
    if kind not in KINDS:
        raise BadRequest(f"Invalid kind of change {kind!r}: expected one of {', '.join(KINDS)}.")
    words = (kind, *((f"--topic={topic}",) if topic else ()))
    if kind == "reset":
        return _reset(form, group, log)
    if kind == "restore":
        return _restore(form, group, log)
    if kind == "undelete":

        def plan(lake: Lake) -> pa.Table:
            return resets.undelete(lake, group, topic or None, now_ms())

    else:

        def plan(lake: Lake) -> pa.Table:
            return plan_cleanup(lake, group, topic or None, now_ms(), live=log.connection is not None)

    table = "tombstones" if kind == "cleanup" else "alterations"
    return ChangeRequest(f"Group {group}", table, group, ((*words, "--", group),), job=kind, plan=plan)


def _restore(form: Submission, group: str, log: LogAddress) -> ChangeRequest:
    """Return the request of offsets at an instant, or from before the record at a log position."""
    at, before, topic, partitions = (form.text(name) for name in ("at", "before", "topic", "partitions"))
    if bool(at) == bool(before):
        raise BadRequest("Specify which offsets: those of a time, or those from before a record.")
    moment, scope = to_ms(at) if at else parse_position(before), _scope(topic, partitions)

    def plan(lake: Lake) -> pa.Table:
        return restore_as_of(lake, group, moment, scope, now_ms(), None, through_cluster=log.connection is not None)

    at = to_iso(moment) if isinstance(moment, int) and is_relative(at) else at
    words = ("restore", f"--as-of={at}" if at else f"--before={before}", *_topic_option(topic, partitions))
    return ChangeRequest(f"Group {group}", "alterations", group, ((*words, "--", group),), job="restore", plan=plan)


def _undo(run: int, log: LogAddress) -> ChangeRequest:
    def plan(lake: Lake) -> pa.Table:
        return restore_run(lake, run, now_ms(), None, through_cluster=log.connection is not None)

    commands = (("restore", f"--run={run}"),)
    return ChangeRequest(f"Undo of run {run}", "alterations", "", commands, job="restore", plan=plan)


def _reset(form: Submission, group: str, log: LogAddress) -> ChangeRequest:
    strategy, topic, partitions = form.text("strategy"), form.text("topic"), form.text("partitions")
    if strategy not in STRATEGIES:
        raise BadRequest(f"Invalid strategy {strategy!r}: expected one of {', '.join(STRATEGIES)}.")
    if strategy in OF_CLUSTER and log.connection is None:
        raise BadRequest(f"{strategy} needs log start and end offsets, which only a cluster knows (--bootstrap).")
    flag, value, number, timestamp = f"--{strategy.replace('_', '-')}", form.text("value"), 0, None
    if strategy == "to_datetime":
        timestamp = resets.time_to_reset_to(value, now_ms())
        value = to_iso(timestamp) if is_relative(value) else value
    elif strategy in resets.NUMBERED:
        number = _number(form, "value", "a number", -_MAX_INT64 if strategy == "shift_by" else 0)
        value = str(number)
    request = resets.Reset(
        group, strategy, resets.compute_of(strategy, number), _scope(topic, partitions), timestamp=timestamp
    )

    def plan(lake: Lake) -> pa.Table:
        connection = log.connection
        with nullcontext() if connection is None else cluster_admin(connection) as admin:
            return resets.reset(lake, request, admin, now_ms())

    has_value = strategy == "to_datetime" or strategy in resets.NUMBERED
    of_topics = _topic_option(topic, partitions) or ("--all-topics",)
    words = ("reset", *of_topics, f"{flag}={value}" if has_value else flag)
    return ChangeRequest(f"Group {group}", "alterations", group, ((*words, "--", group),), job="reset", plan=plan)


def _topic_option(topic: str, partitions: str) -> tuple[str, ...]:
    return (f"--topic={topic}" + (f":{partitions.replace(' ', '')}" if partitions else ""),) if topic else ()


def _scope(topic: str, partitions: str) -> Scope:
    if not topic and partitions:
        raise BadRequest("Partitions need a topic: specify both, or neither.")
    if partitions and not _PARTITIONS.fullmatch(partitions):
        raise BadRequest(f"Invalid partitions {partitions!r}: expected numbers such as 0,1,2.")
    return {topic: [int(part) for part in partitions.split(",")] if partitions else None} if topic else {}


def _number(form: Submission, name: str, what: str, minimum: int) -> int:
    text = form.text(name)
    if not _NUMBER.fullmatch(text) or not minimum <= int(text) <= _MAX_INT64:
        raise BadRequest(f"Invalid {name} {text!r}: expected {what} from {minimum:,} on.")
    return int(text)
