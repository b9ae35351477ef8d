"""Plans of `reset`, `restore` and `undelete`: rows of `alterations`, from the current tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.changes import targets
from offsetlake.pipeline.changes.alterations import OFFSET, Strategy, plan_alterations
from offsetlake.pipeline.changes.group_selection import groups_like, groups_named, select_groups
from offsetlake.pipeline.changes.live import LiveChange
from offsetlake.queries.history.as_of import offsets_as_of
from offsetlake.queries.history.before import LogPosition, offsets_before
from offsetlake.queries.history.deleted import deleted_offsets, done_by, groups_in_history
from offsetlake.queries.history.in_doubt import unknown_then
from offsetlake.rules import strategies
from offsetlake.rules.reduction import KEY
from offsetlake.util.row_codes import rows_in
from offsetlake.util.times import MIN_RECORD_TIMESTAMP_MS, duration_ms, to_iso, to_ms

if TYPE_CHECKING:
    from offsetlake.log.cluster.admin import ClusterAdmin


def undo(lake: Lake, run_id: int, now: int, live: LiveChange | None = None) -> pa.Table:
    """Plan to undo a run of `emit`, for offsets that have not changed since, and for those of groups with members."""
    done = done_by(lake, run_id)
    wanted, expected = targets.before_run(done)
    columns = [(rows["group_id"].to_pylist(), rows["log_partition"].to_pylist()) for rows in done.values()]
    places = {name: place for names, places in columns for name, place in zip(names, places, strict=True)}
    strategy = Strategy("undo", f"run {run_id}")
    return plan_alterations(select_groups(lake, places), wanted, strategy, now, expected, live)


def as_of(
    lake: Lake,
    places: Mapping[str, int],
    moment: int | LogPosition,
    scope: targets.Scope,
    now: int,
    live: LiveChange | None = None,
) -> pa.Table:
    """Plan to restore the offsets of groups at a moment; offsets that were committed only later do not change.

    Args:
        lake: The lake.
        places: The log partition of each group.
        moment: An instant in ms since the epoch, or the position of the record from before which the offsets are.
        scope: The topics and partitions; all if empty.
        now: The commit timestamp in ms since the epoch.
        live: How groups with members are changed; None if they are not.

    Raises:
        BadRequest: The moment is before history, or the position is not in the log partition of a group.
    """
    then = targets.in_scope(pa.concat_tables([_offsets_at(lake, moment, *place) for place in places.items()]), scope)
    groups = select_groups(lake, {**places})
    stored = targets.in_scope(groups.rows("offsets", OFFSET), scope)
    later = stored.filter(pa.array(rows_in(stored, then, KEY) < 0))
    wanted = pa.concat_tables(
        [
            targets.from_history(then, unknown_then(lake, then, moment)),
            targets.unchanged(later, "the group had no offset at that time: it does not change"),
        ]
    )
    evidence = f"before {moment}" if isinstance(moment, LogPosition) else to_iso(moment)
    return plan_alterations(groups, wanted, Strategy("as_of", evidence), now, live=live)


def _offsets_at(lake: Lake, moment: int | LogPosition, group_id: str, log_partition: int) -> pa.Table:
    if not isinstance(moment, LogPosition):
        return offsets_as_of(lake, moment, group_id)
    if moment.log_partition != log_partition:
        raise BadRequest(
            f"The position {moment} is in log partition {moment.log_partition}, but the records of group {group_id} "
            f"are in log partition {log_partition}: `offsetlake history` shows their positions."
        )
    return offsets_before(lake, moment, group_id)


def undelete(lake: Lake, pattern: str, topic: str | None, now: int) -> pa.Table:
    """Plan to restore the last offsets of groups that were deleted or expired."""
    places = groups_in_history(lake, pattern)
    deleted = deleted_offsets(lake, [*places], topic)
    wanted = targets.from_history(deleted, unknown_then(lake, deleted, None))
    return plan_alterations(select_groups(lake, places), wanted, Strategy("undelete"), now)


STRATEGIES: Mapping[str, targets.Compute] = {
    "to_earliest": strategies.to_earliest,
    "to_latest": strategies.to_latest,
    "to_current": strategies.to_current,
    "to_datetime": strategies.to_time,
    "by_duration": strategies.to_time,
}
"""The strategies of kafka-consumer-groups that need no number, as functions of `offsetlake.rules.strategies`."""

NUMBERED: Mapping[str, Callable[[pa.Table, int], pa.Table]] = {
    "to_offset": strategies.to_offset,
    "shift_by": strategies.shift_by,
}
"""The strategies that need a number."""


def compute_of(strategy: str, number: int) -> targets.Compute | None:
    """Return the function of a strategy; None if it copies offsets."""
    if strategy in NUMBERED:
        return lambda rows: NUMBERED[strategy](rows, number)
    return STRATEGIES.get(strategy)


@dataclass(frozen=True, slots=True)
class Reset:
    """A request to reset offsets.

    | Field     | Description |
    |-----------|-------------|
    | group_id  | The group; None if the file contains groups. |
    | strategy  | The name of the strategy in `alterations`: to_earliest, to_offset, from_file, ... |
    | compute   | A function of `rules.strategies`; None for from_file and from_group. |
    | scope     | Topics and partitions (`targets.Scope`). |
    | timestamp | The time of to_datetime and by_duration in ms since the epoch. |
    | source    | The file of from_file, or the group of from_group. |
    | only_if   | If not None, only offsets with this value are changed. |
    | live      | How groups with members are changed; None if they are not. |
    """

    group_id: str | None
    strategy: str
    compute: targets.Compute | None
    scope: targets.Scope
    timestamp: int | None = None
    source: str = ""
    only_if: int | None = None
    live: LiveChange | None = None

    @property
    def evidence(self) -> str | None:
        """The source of the new offsets."""
        return self.source or (None if self.timestamp is None else to_iso(self.timestamp))


def time_to_reset_to(text: str, now: int) -> int:
    """Return a timestamp of `to_datetime` in ms since the epoch.

    Raises:
        BadRequest: It is invalid, or a number that is a time at which no record of Kafka was written.
    """
    timestamp = to_ms(text, now)
    is_number = text.strip().removeprefix("-").isdecimal()
    if timestamp > now and is_number:
        raise BadRequest(
            f"Invalid time {text}: it is {to_iso(timestamp)}, in the future. If it is meant, write it as ISO 8601 with "
            "hyphens; to_latest resets to the log end offsets."
        )
    if timestamp < MIN_RECORD_TIMESTAMP_MS and is_number:
        raise BadRequest(
            f"Invalid time {text}: as milliseconds since the epoch, it is {to_iso(timestamp)}. Write the time as ISO "
            "8601 or, for a duration, its unit, such as 2h ago; to_earliest resets to the log start offsets."
        )
    return timestamp


def time_before(duration: str, now: int) -> int:
    """Return a timestamp of `by_duration` in ms since the epoch; raise BadRequest if it is before the epoch."""
    timestamp = now - duration_ms(duration)
    if timestamp < 0:
        raise BadRequest(f"Invalid duration {duration}: it begins before the epoch, at {to_iso(timestamp)}.")
    return timestamp


def reset(lake: Lake, request: Reset, admin: "ClusterAdmin | None", now: int) -> pa.Table:
    """Plan a reset, including rows without a change; `admin` is the cluster to read log start and end offsets from."""
    ends = targets.LogEndLookup(admin, request.timestamp)
    live = admin is not None
    if request.strategy == "from_file":
        rows = targets.from_file(request.source, request.group_id)
        groups = groups_named(lake, {*rows["group_id"].to_pylist()}, live=live)
        wanted = targets.from_rows(rows, ends)
    elif request.group_id is None:
        raise BadRequest("Specify the group to reset.")
    elif request.compute is None:
        groups = groups_named(lake, {request.group_id, request.source}, live=live)
        wanted = targets.from_group(groups, request.source, request.group_id)
    else:
        groups = groups_like(lake, request.group_id)
        if request.group_id not in groups.found:
            raise BadRequest(f"Cannot reset {request.group_id!r}, which is a pattern: specify one group by its name.")
        now_offsets = targets.committed_offsets(groups, request.group_id)
        wanted = targets.by_strategy(now_offsets, request.group_id, request.scope, request.compute, ends)
    expected = None
    if request.only_if is not None:
        expected = pa.array([request.only_if] * wanted.num_rows, pa.int64())
    return plan_alterations(groups, wanted, Strategy(request.strategy, request.evidence), now, expected, request.live)
