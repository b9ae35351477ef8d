"""How far behind every group is, in records and in time, and how it does: from history and the ends on record.

Everything is as the newest ingest that recorded ends knew it: the commits read up to it, against the ends it was told.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.lake.log_ends import ends_asked_by, ends_until, newest_asked
from offsetlake.queries.decided import decided_until
from offsetlake.rules.consumer_status import MIN_COMMITS, STATUSES, CurrentLags, Status, evaluate
from offsetlake.rules.ends import UNKNOWN, Ends
from offsetlake.rules.reduction import KEY
from offsetlake.rules.windows import Windows, newest_commits
from offsetlake.util.row_codes import Ints, rows_in
from offsetlake.util.times import about, to_duration, to_iso

_LONGER_THAN_KNOWN = 2**63 - 1  # ms
_END_UNKNOWN = -1  # stands for the severity of a partition whose log end is not known: below all others


class NoOffset(BadRequest):
    """No group or topic that was asked about has an offset."""


def lag_of_partitions(
    lake: Lake, pattern: str | None = None, topic: str | None = None, now: int | None = None
) -> pa.Table:
    """Give the lag of each group in each partition it has an offset of, the worst first.

    `now`, ms since the epoch, is the instant judged for: of what was read and asked later nothing is known then.
    Without it, each partition is judged for when its end was asked last.

    | column           | is |
    |------------------|----|
    | group_id, topic, partition | the key |
    | status           | one of STATUSES, by `offsetlake.rules.consumer_status` |
    | why              | of the status UNKNOWN: too few commits, too few observations of the log end, or none |
    | committed_offset | the newest that counts |
    | end_offset       | where the partition ended; null: the last ingest was not told, its notes say why |
    | lag              | the one less the other; below zero the partition lost records, or was made anew |
    | lag_ms           | how long ago the committed offset was the end; null: longer than ends are on record |
    | lag_at_least_ms  | the same, or how long ends are on record |
    | commit_timestamp | of the newest commit, ms |
    | commits          | how many commits the status rests on, 10 at the most |
    | asked_timestamp  | when the end was asked, ms |

    Raises BadRequest where no ends are on record, or no group or topic like this has an offset.
    """
    run = newest_asked(lake, now)
    if run is None:
        raise _nothing_asked(lake, now)
    current, recorded = ends_asked_by(lake, run), Ends(ends_until(lake, run))
    found = [_lag(windows, current, recorded, now) for windows in _windows(lake, run, pattern, topic)]
    if not found:
        like = "" if pattern is None else f" like {pattern!r}"
        of = "" if topic is None else f" of topic {topic!r}"
        raise NoOffset(f"no group{like} has an offset{of}, as far as the lake {lake.path} has read")
    return _worst_first(pa.concat_tables(found), KEY)


def _lag(windows: Windows, current: pa.Table, recorded: Ends, now: int | None) -> pa.Table:
    """Return the lag of some partitions from the log end offsets `current`, and those recorded before."""
    at, newest = rows_in(windows.keys, current, ("topic", "partition")), windows.newest
    unknown, committed, partitions = at == UNKNOWN, windows.offsets[newest], recorded.partitions(windows.keys)
    end, asked = current["end_offset"].to_numpy()[at], current["asked_timestamp"].to_numpy()[at]
    lag, instants = end - committed, asked if now is None else np.full(len(at), now)
    lags = recorded.lags(partitions[windows.numbers], windows.offsets, windows.timestamps)
    observations, first = recorded.observations(partitions)
    present = CurrentLags(lag, instants, recorded.were_reached(partitions, committed), observations)
    severity = np.where(unknown, _END_UNKNOWN, evaluate(windows, lags, present))
    reached = recorded.reached(partitions, committed)
    behind = np.where(lag > 0, instants - reached, 0)
    columns = {
        "severity": severity,
        "why": _why(severity, windows.counts),
        "committed_offset": committed,
        "end_offset": pa.array(end, mask=unknown),
        "lag": pa.array(lag, mask=unknown),
        "lag_ms": pa.array(behind, mask=unknown | ((lag > 0) & (reached == UNKNOWN))),
        "lag_at_least_ms": pa.array(np.where((lag > 0) & (reached == UNKNOWN), instants - first, behind), mask=unknown),
        "commit_timestamp": windows.timestamps[newest],
        "commits": windows.counts,
        "asked_timestamp": pa.array(asked, mask=unknown),
    }
    return pa.table({**{name: windows.keys[name] for name in KEY}, **columns})


def lag_of_groups(partitions: pa.Table) -> pa.Table:
    """Give the lag of each group, the worst first, from what `lag_of_partitions` gives.

    | column     | is |
    |------------|----|
    | group_id   | the group |
    | status, why | those of its worst partition; one whose log end is unknown counts only if all are |
    | lag        | records it is behind, all partitions together whose end is known |
    | lag_ms     | of the partition that is behind for longest; null: for longer than ends are on record |
    | lag_at_least_ms | the same, or how long ends are on record |
    | partitions | how many it has offsets of |
    | not_ok     | how many of them raise an alarm: WARN, STOP, STALL or REWIND |
    | topic, partition | the worst |
    """
    severity = pc.index_in(partitions["status"], pa.array(STATUSES))
    severity = pc.if_else(pc.is_null(partitions["end_offset"]), _END_UNKNOWN, severity)
    beyond = pc.and_(pc.greater(partitions["lag"], 0), pc.is_null(partitions["lag_ms"]))
    columns = {
        "group_id": partitions["group_id"],
        "severity": severity,
        "why": partitions["why"],
        "lag": pc.max_element_wise(partitions["lag"], 0, skip_nulls=False),
        "lag_ms": pc.if_else(beyond, _LONGER_THAN_KNOWN, partitions["lag_ms"]),
        "lag_at_least_ms": partitions["lag_at_least_ms"],
        "not_ok": pc.greater(severity, Status.UNKNOWN).cast(pa.int64()),
        "topic": partitions["topic"],
        "partition": partitions["partition"],
    }
    of_groups = [
        *(("severity", "max"), ("why", "first"), ("lag", "sum"), ("lag_ms", "max"), ("lag_at_least_ms", "max")),
        *(("partition", "count"), ("not_ok", "sum"), ("topic", "first"), ("partition", "first")),
    ]
    names = [
        *("group_id", "severity", "why", "lag", "lag_ms", "lag_at_least_ms"),
        *("partitions", "not_ok", "topic", "partition"),
    ]
    groups = pa.table(columns).group_by("group_id", use_threads=False).aggregate(of_groups).rename_columns(names)
    known = pc.if_else(pc.equal(groups["lag_ms"], _LONGER_THAN_KNOWN), None, groups["lag_ms"])
    return _worst_first(groups.set_column(names.index("lag_ms"), "lag_ms", known), ["group_id"])


def behind(lags: pa.Table) -> list[str | None]:
    """Return for how long groups or partitions have been behind, for people; `>2h`: at least so long."""
    columns = (lags[name].to_pylist() for name in ("lag_ms", "lag_at_least_ms"))
    return [
        to_duration(about(exact)) if exact is not None else f">{to_duration(about(least))}" if least else None
        for exact, least in zip(*columns, strict=True)
    ]


def shown_status(lags: pa.Table) -> list[str]:
    """Return the status of groups or partitions for people, with the reason if it is unknown."""
    both = zip(lags["status"].to_pylist(), lags["why"].to_pylist(), strict=True)
    return [status if why is None else f"unknown ({why})" for status, why in both]


def _why(severity: Ints, commits: Ints) -> pa.Array:
    """Return why a status is UNKNOWN; null for other statuses."""
    reasons = pa.array(["log end unknown", None, "1 commit seen", "log end seen once"])
    cases = [severity == _END_UNKNOWN, severity != Status.UNKNOWN, commits < MIN_COMMITS]
    return reasons.take(pa.array(np.select(cases, [0, 1, 2], 3)))


def _worst_first(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Sort rows by severity, which becomes their status, and by lag; those whose log end is not known come last."""
    order = [("severity", "descending"), ("lag", "descending"), *((name, "ascending") for name in key)]
    rows = rows.sort_by(order)
    severity = rows["severity"].to_numpy()
    status = pa.array(STATUSES).take(pa.array(np.where(severity == _END_UNKNOWN, Status.UNKNOWN, severity)))
    return rows.set_column(rows.column_names.index("severity"), "status", status)


def _windows(lake: Lake, run: int, pattern: str | None, topic: str | None) -> Iterator[Windows]:
    """Yield the newest commits of all partitions, some log partitions at a time."""
    where = None if topic is None else pc.field("topic") == topic
    for rows in decided_until(lake, run, where, pattern):
        windows = newest_commits(rows)
        if len(windows.counts):
            yield windows


def _nothing_asked(lake: Lake, now: int | None) -> BadRequest:
    first = lake.query("SELECT min(asked_timestamp) AS at FROM log_ends", "log_ends")["at"][0].as_py()
    if first is None or now is None:
        return BadRequest(
            f"where topics end is not on record in the lake {lake.path}: only a cycle over a live cluster asks, "
            "`offsetlake run --bootstrap HOST:PORT`; a log in a folder does not say"
        )
    return BadRequest(f"ends are on record since {to_iso(first)}: nothing is known of {to_iso(now)}, before it")
