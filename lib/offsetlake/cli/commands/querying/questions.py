"""The commands that query the state and history of offsets; none of them starts Spark."""

from typing import Annotated, Literal

import pyarrow as pa
import typer

from offsetlake.cli import output
from offsetlake.cli.commands.completion import complete_group, complete_topic
from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.each_lake import each_lake
from offsetlake.cli.commands.options import (
    FLEET,
    LAKE,
    QUESTIONS,
    ROWS,
    TIMES,
    GroupOption,
    GroupPatternOption,
    NowOption,
    TopicOption,
    command,
)
from offsetlake.cli.progress import Progress
from offsetlake.lake.definitions import TABLES
from offsetlake.lake.sql.engine import limited_memory
from offsetlake.util.times import about, duration_ms, to_duration

# The columns of tables for people, in their order, each with its importance (`offsetlake.cli.tables.Column`).
_OFFSETS_SHOWN = {
    "group_id": 1, "topic": 1, "partition": 1, "committed_offset": 1, "metadata": 3, "commit_timestamp": 2,
    "log_partition": 4, "log_offset": 4,
}  # fmt: skip
_GROUPS_SHOWN = {
    "group_id": 1, "group_type": 3, "state": 1, "state_timestamp": 4, "protocol_type": 6, "member_count": 2,
    "subscribed_topics": 5, "offsets": 2,
}  # fmt: skip
_HISTORY_SHOWN = {
    "log_offset": 2, "log_timestamp": 1, "event": 1, "committed_offset": 1, "previous_offset": 2, "difference": 2,
    "metadata": 6, "producer_id": 5, "outcome": 3, "principal": 3, "client_id": 4, "address": 6,
}  # fmt: skip
_AUDIT_EVENTS_SHOWN = {
    "log_timestamp": 1, "what": 1, "group_id": 1, "principal": 1, "client_id": 2, "address": 2, "log_partition": 3,
    "log_offset": 3, "last_log_offset": 4,
}  # fmt: skip
_TOMBSTONES_SHOWN = {
    "group_id": 1, "topic": 1, "partition": 1, "outcome": 1, "rule": 2, "clock": 4, "clock_timestamp": 3,
    "retention_ms": 5, "committed_offset": 3, "judged_offset": 6, "reason": 2,
}  # fmt: skip
_ALTERATIONS_SHOWN = {
    "run_id": 2, "group_id": 1, "topic": 1, "partition": 1, "strategy": 3, "evidence": 5, "previous_offset": 1,
    "committed_offset": 1, "commit_timestamp": 4, "outcome": 1, "reason": 2,
}  # fmt: skip
_TRANSACTIONS_SHOWN = {
    "producer_id": 1, "producer_epoch": 3, "log_partition": 2, "first_log_offset": 3, "first_timestamp": 2, "age": 1,
    "offsets": 1, "groups": 1,
}  # fmt: skip

AsOfOption = Annotated[
    str | None,
    typer.Option("--as-of", metavar="TIME", help=f"The state at this time: {TIMES}."),
]
SinceOption = Annotated[str | None, typer.Option("--since", metavar="TIME", help=f"Only from this time on: {TIMES}.")]


@command(
    QUESTIONS,
    ROWS | LAKE | FLEET,
    "offsetlake offsets --group billing",
    "offsetlake offsets --as-of 2026-11-21T05:38:54 --format csv",
)
@each_lake()
@limited_memory()
def offsets(
    context: CommandContext,
    group: GroupOption = None,
    topic: TopicOption = None,
    as_of: AsOfOption = None,
) -> None:
    """Show the latest committed offset of each group, topic and partition, now or at a time."""
    lake = context.questions
    if as_of is None:
        limit = output.max_rows(context.limit, context.format)
        rows = lake.offsets(group, topic, limit=limit)
        total = rows.num_rows if rows.num_rows != limit else lake.count_offsets(group, topic)
    else:
        instant = context.instant("--as-of", as_of)
        with Progress(quiet=True) as progress:
            progress.say(f"looking up offsets as of {as_of}")
            rows = lake.as_of(instant, group, topic, limit=context.max_rows, advance=progress.advance)
        total = rows.num_rows
    context.write(rows, _OFFSETS_SHOWN, total)


@command(
    QUESTIONS,
    ROWS | LAKE | FLEET,
    "offsetlake groups",
    "offsetlake groups --group 'bulk-*' --state Empty",
    "offsetlake groups --as-of 2026-11-21T05:38:54",
    "offsetlake groups --fleet conf/lakes.toml --cluster 'ex*'",
)
@each_lake()
@limited_memory()
def groups(
    context: CommandContext,
    group: GroupPatternOption = None,
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help="Only groups in this state.")] = None,
    group_type: Annotated[
        Literal["classic", "consumer", "share", "streams"] | None,
        typer.Option("--type", help="Only groups of this type."),
    ] = None,
    as_of: AsOfOption = None,
) -> None:
    """Show the type, state, members, subscription and number of offsets of each group, now or at a time."""
    instant = None if as_of is None else context.instant("--as-of", as_of)
    with Progress(quiet=True) as progress:
        progress.say("looking up groups" if as_of is None else f"looking up groups as of {as_of}")
        rows = context.questions.groups(
            group, state=state, group_type=group_type, as_of=instant, advance=progress.advance
        )
    context.write(rows, _GROUPS_SHOWN)


@command(
    QUESTIONS,
    ROWS | LAKE | FLEET,
    "offsetlake history --group billing --topic orders --partition 0 --limit 20",
    "offsetlake history --group billing --topic orders --partition 0 --event reset_back --who carol",
)
@each_lake()
def history(
    context: CommandContext,
    group: Annotated[str, typer.Option("--group", metavar="GROUP", autocompletion=complete_group, help="The group.")],
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", autocompletion=complete_topic, help="The topic.")],
    partition: Annotated[int, typer.Option("--partition", metavar="P", help="The partition.")],
    event: Annotated[
        Literal["commit", "reset", "reset_back", "tombstone"] | None,
        typer.Option(
            "--event",
            help="Only these; reset_back is a commit lower than the offset in force, and reset any other one that the "
            "view changes calls a reset.",
        ),
    ] = None,
    who: Annotated[
        str | None,
        typer.Option("--who", metavar="TEXT", help="Only those whose principal or client id contains the text."),
    ] = None,
    since: SinceOption = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help=f"Only up to this time: {TIMES}.")
    ] = None,
) -> None:
    """Show the commits of a group for one partition, newest first, with resets and, if recorded, the principal."""
    first, last = (
        None if time is None else context.instant(option, time)
        for option, time in {"--since": since, "--until": until}.items()
    )
    rows = context.questions.history(
        group, topic, partition, event=event, who=who, since=first, until=last, limit=context.max_rows
    )
    context.write(rows, _HISTORY_SHOWN)


@command(
    QUESTIONS,
    ROWS | LAKE | FLEET,
    "offsetlake audit-events --lake example/lake --group 'bill*' --since 2026-01-31T14:00",
    "offsetlake audit-events --lake example/lake --principal User:carol --format csv",
)
@each_lake()
def audit_events(
    context: CommandContext,
    group: GroupPatternOption = None,
    principal: Annotated[
        str | None,
        typer.Option("--principal", metavar="PRINCIPAL", help="Only events of this principal: User:alice, os:alice."),
    ] = None,
    since: SinceOption = None,
) -> None:
    """Show audit events, newest first: which principal deleted or committed offsets through `serve` or a job."""
    since_ms = None if since is None else context.instant("--since", since)
    rows = context.questions.audit_events(group, principal=principal, since=since_ms, limit=context.max_rows)
    context.write(rows, _AUDIT_EVENTS_SHOWN)


@command(
    QUESTIONS,
    ROWS | LAKE | FLEET,
    'offsetlake sql "SELECT group_id, count(*) AS commits FROM offset_commits GROUP BY group_id"',
    'offsetlake sql "SELECT * FROM runs" --format json',
)
@each_lake()
@limited_memory()
def sql(
    context: CommandContext,
    statement: Annotated[
        str,
        typer.Argument(
            metavar="SELECT",
            help=f"A SELECT statement in DataFusion's dialect over the tables {', '.join(TABLES)} and the views of "
            "`offsetlake audit`.",
        ),
    ],
) -> None:
    """Run a read-only SQL query over all tables and views of the lake."""
    with Progress(quiet=True) as progress:
        progress.say("running the query")
        rows = context.questions.scan_sql(statement)
    context.write(rows)


@command(
    QUESTIONS,
    ROWS | LAKE | FLEET,
    "offsetlake transactions",
    "offsetlake transactions --open-longer-than 15m --format json",
)
@each_lake()
def transactions(
    context: CommandContext,
    open_longer_than: Annotated[
        str,
        typer.Option("--open-longer-than", metavar="DURATION", help="Only transactions that are older: 15m, 1h."),
    ] = "0s",
    now: NowOption = None,
) -> None:
    """Show open transactions: the producer, the age, and the offsets that each blocks. None is ever aborted."""
    at = context.now if now is None else context.instant("--now", now)
    rows = context.questions.transactions(open_longer_ms=duration_ms(open_longer_than), now=at)
    ages = [None if age is None else to_duration(about(age)) for age in rows["age_ms"].to_pylist()]
    context.write(rows.append_column("age", pa.array(ages, pa.string())), _TRANSACTIONS_SHOWN)


@command(QUESTIONS, ROWS | LAKE | FLEET, "offsetlake alterations", "offsetlake alterations --group billing")
@each_lake()
def alterations(
    context: CommandContext,
    group: GroupPatternOption = None,
    outcome: Annotated[
        Literal["planned", "done", "refused"] | None,
        typer.Option("--outcome", help="Only alterations with this outcome."),
    ] = None,
) -> None:
    """Show offsets that were reset, restored or repaired, newest first, with old and new value, run and outcome."""
    rows = context.questions.alterations(group, outcome=outcome, limit=context.max_rows)
    context.write(rows, _ALTERATIONS_SHOWN)


@command(
    QUESTIONS, ROWS | LAKE | FLEET, "offsetlake tombstones", "offsetlake tombstones --group 'bulk-*' --outcome refused"
)
@each_lake()
def tombstones(
    context: CommandContext,
    group: GroupPatternOption = None,
    outcome: Annotated[
        Literal["planned", "withdrawn", "emitted", "refused", "gone"] | None,
        typer.Option("--outcome", help="Only tombstones with this outcome."),
    ] = None,
    rule: Annotated[
        str | None, typer.Option("--rule", metavar="RULE", help="Only those that this retention rule planned.")
    ] = None,
) -> None:
    """Show planned and written tombstones, each with the retention rule, the evidence and the outcome."""
    rows = context.questions.tombstones(group, outcome=outcome, rule=rule, limit=context.max_rows)
    context.write(rows, _TOMBSTONES_SHOWN)
