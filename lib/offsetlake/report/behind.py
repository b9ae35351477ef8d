"""Sections on where groups will be: how far they are behind, and when their offsets go."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.pipeline.expire.what_if import what_if
from offsetlake.queries.lag import NoOffset, behind, lag_of_groups, lag_of_partitions, shown_status
from offsetlake.queries.lag_over_time import lag_over_time
from offsetlake.queries.questions import like
from offsetlake.report import pictures
from offsetlake.report.page import Row, Section
from offsetlake.report.scope import MOST_GROUPS, Scope
from offsetlake.report.words import count, day, duration, instant, shortened
from offsetlake.rules.consumer_status import ALARMS
from offsetlake.rules.policy import RetentionPolicy

MOST_NAMED = 10
"""How many groups a sentence names."""

_DAY = 86_400_000
_DAYS = 8  # the seven days a broker keeps offsets, and what is left of this one
_WHAT_TO_DO = {
    "STOP": "commits nothing any more: look whether its consumers run",
    "STALL": "commits one value again and again: look for a record it cannot get past",
    "REWIND": "went back: somebody reset it, or two consumers hold one partition",
    "WARN": "falls farther behind: it needs more consumers, or faster ones",
}


def lags(scope: Scope) -> pa.Table:
    """Return how far behind each group is, the worst first; no row if no offset of these groups is left."""
    try:
        return lag_of_groups(lag_of_partitions(scope.lake, scope.pattern))
    except NoOffset:
        return pa.table({})
    finally:
        pa.default_memory_pool().release_unused()  # of all partitions: the queries after this one have a limit


def lag(scope: Scope, groups: pa.Table) -> Section:
    """Show how far behind the worst groups are and were; `groups` is what `lags` returns."""
    if not groups.num_rows:
        return Section("Lag", "These groups have no offsets.")
    worst = groups.slice(0, MOST_GROUPS)
    rows: list[Row] = []
    lanes, until = [], scope.until_ms
    for group, status, since in zip(worst.to_pylist(), shown_status(worst), behind(worst), strict=True):
        name = group["group_id"]
        rows.append({"group": name, "status": status, "lag": group["lag"], "behind for": since})
        if group["lag"] is None:
            continue
        past = lag_over_time(scope.lake, name)
        past = past.filter(pc.greater_equal(past["asked_timestamp"], scope.from_ms))
        at, lags = past["asked_timestamp"].to_numpy(), past["lag"].to_numpy().astype(float)
        until = max(until, *at.tolist())
        lanes.append(pictures.Lane(name, at, lags, f"{status}, {count(group['lag'])} records"))
    return Section(
        "Lag",
        _advice(groups),
        rows,
        pictures.lanes(lanes, scope.from_ms, until, steps=False) if lanes else None,
        groups.num_rows - len(rows),
        scope.command("lag"),
    )


def _advice(groups: pa.Table) -> str:
    bad = groups.filter(pc.is_in(groups["status"], pa.array(ALARMS)))
    drawn = "Drawn is how many records a group was behind each time ends were recorded."
    if not bad.num_rows:
        return f"No group raises an alarm. {drawn}"
    named = [f"{shortened(row['group_id'], 60)} ({row['status']})" for row in bad.slice(0, MOST_NAMED).to_pylist()]
    more = f" and {bad.num_rows - len(named):,} more" if bad.num_rows > len(named) else ""
    first = bad.slice(0, 1).to_pylist()[0]
    return (
        f"{bad.num_rows:,} of {groups.num_rows:,} groups raise an alarm: {', '.join(named)}{more}. "
        f"{shortened(first['group_id'], 60)} {_WHAT_TO_DO[first['status']]}. {drawn}"
    )


def expiry(scope: Scope, policy: RetentionPolicy) -> Section:
    """Show which offsets go on which day by the retention configured, if nothing else happens."""
    ends = [(scope.until_ms // _DAY + 1 + ahead) * _DAY - 1 for ahead in range(_DAYS)]
    horizons = {"now": 0, **{str(end): end - scope.until_ms for end in (*ends, ends[-1] + 30 * _DAY)}}
    going = like(what_if(scope.lake, policy, None, scope.until_ms, horizons), scope.pattern)
    until = np.array([going[name].to_numpy() for name in horizons]).reshape(len(horizons), -1)
    a_day = np.diff(until, axis=0, prepend=0).T
    total = a_day.sum(axis=1)
    title, kept = "Expiry calendar", f"kept {duration(policy.default_ms)} unless the policy says otherwise"
    if not total.any():
        return Section(title, f"No offset goes in the {_DAYS + 30} days to come. They are {kept}.")
    worst = [row for row in np.lexsort((-total, -until[_DAYS], -until[0])) if total[row]]
    shown = worst[:MOST_GROUPS]
    of = going.take(shown).to_pylist()
    rows = [
        {
            "group": row["group_id"],
            "offsets": row["offsets"],
            "due": row["now"],
            f"by {day(ends[-1])}": row[str(ends[-1])],
            "next": instant(row["next_expiry_timestamp"]),
        }
        for row in of
    ]
    days = ["due", *(day(end).replace(" ", "\n") for end in ends), "30\nmore"]
    undelete = scope.command("undelete", scope.pattern or "GROUP", by_group=False)
    return Section(
        title,
        f"Offsets that expire if nothing else happens, {kept}. {int(until[0].sum()):,} are due; "
        f"{int(until[_DAYS].sum() - until[0].sum()):,} more by {day(ends[-1])}. A group that is to keep them needs a "
        f"member or a longer retention. To bring back what expired: {undelete}.",
        rows,
        pictures.calendar([row["group_id"] for row in of], days, a_day[shown]),
        len(worst) - len(shown),
        scope.command("expire", "--what-if"),
    )
