"""The section on what needs attention: what to look at first, each with the command that shows all of it."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from offsetlake.report import numbers
from offsetlake.report.page import Row, Section
from offsetlake.report.scope import Scope
from offsetlake.report.words import count, duration, instant, shortened
from offsetlake.rules.consumer_status import ALARMS
from offsetlake.util.times import to_duration, to_iso

HANGS_MS = 15 * 60_000
"""How long a transaction has to be open before it is reported: the most a broker allows unless configured."""


def attention(scope: Scope, busiest: numbers.Busiest, lags: pa.Table | None) -> Section:
    """Show regressions, resets, double writers, stalled offsets, alarms of lag, orphans and hanging transactions.

    Of views that look at every commit, the `numbers.busiest` groups are asked. `lags` is what `audit.lag.lag_of_groups`
    returns, None if no log end is on record.
    """
    rows = [*_of_commits(scope, busiest), *_of_lag(scope, lags), *_of_state(scope)]
    groups = busiest.groups
    number, of = groups.num_rows, groups["groups"][0].as_py() if groups.num_rows else 0
    limited = f" Commit by commit, the {number:,} of {of:,} groups that commit most are checked." if number < of else ""
    says = "Look at these first; each command shows all of it." if rows else "Nothing was found that needs attention."
    return Section("What needs attention", says + limited, rows)


def _of_commits(scope: Scope, busiest: numbers.Busiest) -> Iterator[Row]:
    since = ("--since", to_iso(scope.from_ms))
    row = numbers.worst(scope, "regressions", busiest)
    if row:
        yield _row(
            "offsets that went back with nothing to explain it",
            row,
            f"{_key(row)}: {count(int(row['records_again']))} records again",
            scope.command("audit", "regressions", *since),
        )
    row = numbers.worst(scope, "changes", busiest, "change = 'reset'")
    if row:
        old = "none" if row["old_offset"] is None else f"{row['old_offset']:,}"
        yield _row(
            "resets",
            row,
            f"{_key(row)}: from {old} to {row['new_offset']:,} at {instant(row['effective_timestamp'])}",
            scope.command("audit", "changes", *since),
        )
    row = numbers.worst(scope, "double_writers", busiest)
    if row:
        times = "once" if row["turns"] == 1 else f"{row['turns']:,} times"
        yield _row(
            "offsets with two writers",
            row,
            f"{_key(row)}: taken from each other {times}",
            scope.command("audit", "double_writers", *since),
        )
    row = numbers.worst(scope, "stalled_partitions", busiest)
    if row:
        behind = count(int(row["known_behind"]))
        yield _row(
            "stalled offsets",
            row,
            f"{_key(row)}: at least {behind} records behind, for {duration(row['stalled_ms'])}",
            scope.command("audit", "stalled_partitions", *since),
        )


def _of_lag(scope: Scope, lags: pa.Table | None) -> Iterator[Row]:
    alarms = [] if lags is None else [row for row in lags.to_pylist() if row["status"] in ALARMS]
    if alarms:
        worst = f"{_name(alarms[0]['group_id'])}: {alarms[0]['status']}, {count(alarms[0]['lag'])} records behind"
        yield _row("groups that raise an alarm of lag", {"found": len(alarms)}, worst, scope.command("lag"))


def _of_state(scope: Scope) -> Iterator[Row]:
    row = numbers.worst_orphan(scope)
    if row:
        yield _row(
            "groups that no consumer uses",
            row,
            f"{_name(row['group_id'])}: {row['why']}, {row['offsets']:,} offsets, idle for {duration(row['idle_ms'])}",
            scope.command("audit", "orphan_groups"),
        )
    waiting = numbers.transactions(scope).to_pylist()
    hanging = [row for row in waiting if row["age_ms"] is None or row["age_ms"] >= HANGS_MS]
    if hanging:
        age = duration(hanging[0]["age_ms"]) or "an unknown time"
        yield _row(
            "hanging transactions",
            {"found": len(hanging)},
            f"producer {hanging[0]['producer_id']}: {hanging[0]['offsets']:,} offsets have waited for {age}",
            scope.command("transactions", "--open-longer-than", to_duration(HANGS_MS), by_group=False),
        )


def _row(what: str, row: dict[str, Any], worst: str, command: str) -> Row:
    return {"what": what, "found": row["found"], "the worst or newest": worst, "command": command}


def _key(row: dict[str, Any]) -> str:
    return f"{_name(row['group_id'])}, {_name(row['topic'])}-{row['partition']}"


def _name(name: str) -> str:
    return shortened(name, 40)
