"""The section on problems: the worst or newest of each kind, with the command that lists all of them."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.sql.engine import quoted
from offsetlake.queries.lag import shown_lag
from offsetlake.queries.log_clock import wrong_clocks
from offsetlake.queries.selection import like
from offsetlake.queries.share import topic_names
from offsetlake.rules.lag.consumer_status import ALARMS
from offsetlake.util.amounts import counted, noun
from offsetlake.util.times import to_duration, to_iso
from offsetlake.web.report import candidates, numbers
from offsetlake.web.report.page import Row, Section
from offsetlake.web.report.scope import Scope
from offsetlake.web.report.words import count, duration, instant, shortened

HANGING_AFTER_MS = 15 * 60_000
"""How long a transaction must be open to be reported: the default of the broker's `transaction.max.timeout.ms`."""

_MAX_NAME_CHARACTERS = 40

_Problem = tuple[Row, str | None]
"""A row of the section, and the group that is worst; None if it is about no group."""


def attention(scope: Scope, busiest: numbers.BusiestGroups, lags: pa.Table | None) -> Section:
    """Return the section on problems of commits, lag, groups and transactions.

    Args:
        scope: The groups and the period.
        busiest: The groups that are checked by the views that read every commit.
        lags: The result of `queries.lag.lag_of_groups`; None if no log end offset is recorded.
    """
    problems = [
        *_commit_problems(scope, busiest),
        *_lag_alarms(scope, lags),
        *_state_problems(scope),
        *_wrong_clocks(scope),
        *_share_problems(scope),
    ]
    groups = busiest.groups
    checked, total = groups.num_rows, groups["groups"][0].as_py() if groups.num_rows else 0
    limit = f" Single commits are checked only for the {checked:,} of {counted(total, 'group')} with the most commits."
    text = "Check these first. Each command lists all results." if problems else "No problems were found."
    rows, names = [row for row, _ in problems], [name for _, name in problems]
    return Section("What needs attention", text + (limit if checked < total else ""), rows, groups=names)


def _commit_problems(scope: Scope, busiest: numbers.BusiestGroups) -> Iterator[_Problem]:
    since = ("--since", to_iso(scope.from_ms))
    row = numbers.worst(scope, "regressions", busiest)
    if row:
        yield _row(
            "unexplained regressions",
            row,
            f"{_key(row)}: {_records(int(row['records_again']))} read again",
            scope.command("audit", "regressions", *since),
        )
    row = numbers.worst(scope, "changes", candidates.with_possible_resets(scope, busiest), "change = 'reset'")
    if row:
        old_offset = "none" if row["old_offset"] is None else f"{row['old_offset']:,}"
        yield _row(
            "resets",
            row,
            f"{_key(row)}: from {old_offset} to {row['new_offset']:,} at {instant(row['effective_timestamp'])}",
            scope.command("audit", "changes", *since),
        )
    row = numbers.worst(scope, "double_writers", busiest)
    if row:
        commits = counted(row["turns"], "conflicting commit")
        yield _row(
            "offsets with two writers",
            row,
            f"{_key(row)}: {commits}",
            scope.command("audit", "double_writers", *since),
        )
    row = numbers.worst(scope, "stalled_partitions", candidates.with_lag_to_another_group(scope, busiest))
    if row:
        yield _row(
            "stalled offsets",
            row,
            f"{_key(row)}: lag of at least {_records(int(row['known_behind']))} for {duration(row['stalled_ms'])}",
            scope.command("audit", "stalled_partitions", *since),
        )


def _lag_alarms(scope: Scope, lags: pa.Table | None) -> Iterator[_Problem]:
    if lags is None or not lags.num_rows:
        return
    alarms = lags.filter(pc.is_in(lags["status"], pa.array(ALARMS)))
    if alarms.num_rows:
        (first,) = alarms.slice(0, 1).to_pylist()
        lag = shown_lag(first["lag"], first["lag_at_most"], count)
        worst = (
            f"{_name(first['group_id'])}: {first['status']}, lag of {lag} {noun(first['lag_at_most'] or 0, 'record')}"
        )
        if first["deleted_before_read"]:
            worst += f", {count(first['deleted_before_read'])} deleted before they were read"
        yield _row("groups with a lag alarm", {**first, "matches": alarms.num_rows}, worst, scope.command("lag"))


def _state_problems(scope: Scope) -> Iterator[_Problem]:
    row = numbers.worst_orphan(scope)
    if row:
        yield _row(
            "unused groups",
            row,
            f"{_name(row['group_id'])}: {row['why']}, {counted(row['offsets'], 'offset')}, idle for "
            f"{duration(row['idle_ms'])}",
            scope.command("audit", "orphan_groups"),
        )
    transactions = numbers.transactions(scope).to_pylist()
    hanging = [row for row in transactions if row["age_ms"] is None or row["age_ms"] >= HANGING_AFTER_MS]
    if hanging:
        age = duration(hanging[0]["age_ms"]) or "an unknown time"
        yield _row(
            "hanging transactions",
            {"matches": len(hanging)},
            f"producer {hanging[0]['producer_id']}: {counted(hanging[0]['offsets'], 'offset')} pending for {age}",
            scope.command("transactions", "--open-longer-than", to_duration(HANGING_AFTER_MS), by_group=False),
        )


def _wrong_clocks(scope: Scope) -> Iterator[_Problem]:
    groups = like(wrong_clocks(scope.lake), scope.pattern)
    if groups.num_rows:
        row = groups.slice(0, 1).to_pylist()[0] | {"matches": groups.num_rows}
        earliest, latest = (to_iso(row[name]) for name in ("least_timestamp", "greatest_timestamp"))
        columns = "log_partition, log_offset, log_timestamp, commit_timestamp"
        sql = f"SELECT {columns} FROM offset_commits WHERE group_id = {quoted(row['group_id'])}"  # noqa: S608
        yield _row(
            "groups with wrong timestamps",
            row,
            f"{_name(row['group_id'])}: {earliest if row['least_timestamp'] < 0 else latest}",
            scope.command("sql", sql, by_group=False),
        )


def _share_problems(scope: Scope) -> Iterator[_Problem]:
    row = numbers.worst_redelivered(scope)
    if row:
        topic = topic_names(scope.lake).get(row["topic_id"], row["topic_id"])
        yield _row(
            "records of share groups delivered again",
            row,
            f"{_key({**row, 'topic': topic})}: {_records(row['redelivered_records'])}, up to "
            f"{counted(row['max_delivery_count'], 'time')}",
            scope.command("audit", "poison_records"),
        )


def _row(problem: str, row: dict[str, Any], worst: str, command: str) -> _Problem:
    shown = {"problem": problem, "count": row["matches"], "worst or newest": worst, "command": command}
    return shown, row.get("group_id")


def _key(row: dict[str, Any]) -> str:
    return f"{_name(row['group_id'])}, {_name(row['topic'])}:{row['partition']}"


def _records(number: int) -> str:
    return f"{count(number)} {noun(number, 'record')}"


def _name(name: str) -> str:
    return shortened(name, _MAX_NAME_CHARACTERS)
