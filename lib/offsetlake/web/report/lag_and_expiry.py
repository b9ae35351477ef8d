"""The sections on the lag of groups and on the expiry of their offsets."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.pipeline.expire.what_if import what_if
from offsetlake.queries.lag import NoOffset, behind, lag_by_group, shown_lag, shown_status
from offsetlake.queries.lag_over_time import lag_over_time
from offsetlake.queries.selection import like
from offsetlake.rules.lag.consumer_status import ALARMS
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.util.amounts import noun
from offsetlake.web.report.charts import Calendar, Lane, Lanes
from offsetlake.web.report.page import Row, Section
from offsetlake.web.report.scope import MAX_GROUPS, Scope
from offsetlake.web.report.words import count, day, duration, instant, shortened

MAX_NAMED_GROUPS = 10
"""The maximum number of groups that a sentence names."""

_MAX_NAME_CHARACTERS = 60
_DAY_MS = 86_400_000
_DAYS = 8  # the rest of today and the seven days of a broker's default retention
_ADVICE = {
    "STOP": "no longer commits: check whether its consumers are running",
    "STALL": "commits the same offset repeatedly: check for a record that it cannot process",
    "REWIND": "committed a lower offset than before: it was reset, or two consumers own the same partition",
    "WARN": "has a growing lag: it needs more or faster consumers",
    "NO_COMMIT": "reads partitions in which it has never committed: check whether its consumers can process records",
    "DELETED_BEFORE_READ": "did not read records before they were deleted: its topic needs a longer retention time, or "
    "more or faster consumers",
    "BEYOND_END": "has committed offsets above the log end: its topic lost records or was created again, and its "
    "consumers fail or continue by their reset policy",
}


def lags(scope: Scope) -> pa.Table:
    """Return the lag of each group, the worst first; no rows if the groups have no offsets."""
    try:
        return lag_by_group(scope.lake, scope.pattern)
    except NoOffset:
        return pa.table({})


def lag(scope: Scope, groups: pa.Table) -> Section:
    """Return the section on the lag of the worst groups, now and over time; `groups` is the result of `lags`."""
    if not groups.num_rows:
        return Section("Lag", "These groups have no offsets.")
    worst = groups.slice(0, MAX_GROUPS)
    rows: list[Row] = []
    lanes, until = [], scope.until_ms
    for group, status, behind_for in zip(worst.to_pylist(), shown_status(worst), behind(worst), strict=True):
        name = group["group_id"]
        records = shown_lag(group["lag"], group["lag_at_most"])
        rows.append({"group": name, "status": status, "lag": records, "behind for": behind_for})
        if group["lag"] is None:
            continue
        history = lag_over_time(scope.lake, name)
        history = history.filter((pc.field("asked_timestamp") >= scope.from_ms) & pc.field("lag").is_valid())
        if not history.num_rows:
            continue
        timestamps, values = history["asked_timestamp"].to_numpy(), history["lag"].to_numpy().astype(float)
        until = max(until, int(timestamps.max()))
        lanes.append(
            Lane(
                name,
                timestamps,
                values,
                f"{group['status']}, {shown_lag(group['lag'], group['lag_at_most'], count)} "
                f"{noun(group['lag_at_most'] or 0, 'record')}",
            )
        )
    return Section(
        "Lag",
        _alarms(groups),
        rows,
        Lanes(lanes, scope.from_ms, until, steps=False) if lanes else None,
        groups.num_rows - len(rows),
        scope.command("lag"),
    )


def _alarms(groups: pa.Table) -> str:
    alarms = groups.filter(pc.is_in(groups["status"], pa.array(ALARMS)))
    chart = "The chart shows the lag of each group at the times when log end offsets were recorded."
    if not alarms.num_rows:
        return f"No group has an alarm. {chart}"
    named = [f"{_name(row['group_id'])} ({row['status']})" for row in alarms.slice(0, MAX_NAMED_GROUPS).to_pylist()]
    more = f" and {alarms.num_rows - len(named):,} more" if alarms.num_rows > len(named) else ""
    worst = alarms.slice(0, 1).to_pylist()[0]
    return (
        f"Groups with an alarm ({alarms.num_rows:,} of {groups.num_rows:,}): {', '.join(named)}{more}. "
        f"{_name(worst['group_id'])} {_ADVICE[worst['status']]}. {chart}"
    )


def _name(name: str) -> str:
    return shortened(name, _MAX_NAME_CHARACTERS)


def expiry(scope: Scope, policy: RetentionPolicy) -> Section:
    """Return the section on the days on which offsets expire by the configured retention, if nothing else changes."""
    ends = [(scope.until_ms // _DAY_MS + 1 + ahead) * _DAY_MS - 1 for ahead in range(_DAYS)]
    horizons = {"now": 0, **{str(end): end - scope.until_ms for end in (*ends, ends[-1] + 30 * _DAY_MS)}}
    groups = like(what_if(scope.lake, policy, None, scope.until_ms, horizons), scope.pattern)
    expired_until = np.array([groups[name].to_numpy() for name in horizons]).reshape(len(horizons), -1)
    per_day = np.diff(expired_until, axis=0, prepend=0).T
    total = per_day.sum(axis=1)
    title, retention = "Expiry calendar", f"The default retention time is {duration(policy.default_ms)}."
    if not total.any():
        return Section(title, f"No offset expires in the next {_DAYS + 30} days. {retention}")
    worst = [row for row in np.lexsort((-total, -expired_until[_DAYS], -expired_until[0])) if total[row]]
    shown = worst[:MAX_GROUPS]
    shown_groups = groups.take(shown).to_pylist()
    rows = [
        {
            "group": row["group_id"],
            "offsets": row["offsets"],
            "due": row["now"],
            f"by {day(ends[-1])}": row[str(ends[-1])],
            "next": instant(row["next_expiry_timestamp"]),
        }
        for row in shown_groups
    ]
    days = ["due", *(day(end).replace(" ", "\n") for end in ends), "30\nmore"]
    undelete = scope.command("undelete", scope.pattern or "GROUP", by_group=False)
    due, later = int(expired_until[0].sum()), int(expired_until[_DAYS].sum() - expired_until[0].sum())
    return Section(
        title,
        f"Offsets that expire if nothing else changes: {due:,} are due, and {later:,} more expire by {day(ends[-1])}. "
        f"{retention} To keep the offsets of a group, start a consumer or configure a longer retention time. "
        f"To restore expired offsets: {undelete}.",
        rows,
        Calendar([row["group_id"] for row in shown_groups], days, per_day[shown]),
        len(worst) - len(shown),
        scope.command("expire", "--what-if"),
    )
