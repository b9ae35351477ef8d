"""The commands that only ask: none of them starts Spark."""

from typing import Annotated, Literal

import pyarrow as pa
import typer

from offsetlake.cli.commands.options import (
    QUESTIONS,
    ConfigOption,
    FormatOption,
    GroupPatternOption,
    LakeOption,
    LimitOption,
    NowOption,
    TopicOption,
    app,
    examples,
    opened,
)
from offsetlake.cli.output import Progress, max_rows, write
from offsetlake.lake.definitions import TABLES
from offsetlake.lake.engine import limited_memory
from offsetlake.lake.select import select
from offsetlake.queries import questions
from offsetlake.queries.as_of import groups_as_of, offsets_as_of
from offsetlake.util.times import about, duration_ms, now_ms, to_duration, to_ms

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
    typer.Option(
        "--as-of", metavar="TIME", help="As they were then: ms since the epoch or ISO 8601, UTC unless it says."
    ),
]


@app.command(
    rich_help_panel=QUESTIONS,
    epilog=examples(
        "offsetlake offsets --group billing",
        "offsetlake offsets --as-of 2026-11-21T05:38:54 --format csv",
    ),
)
@limited_memory()
def offsets(
    group: Annotated[str | None, typer.Option("--group", metavar="GROUP", help="Only this group.")] = None,
    topic: TopicOption = None,
    as_of: AsOfOption = None,
    limit: LimitOption = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Where every group is: the latest committed offset of each group, topic and partition, now or as of a time."""
    settings, at = opened(lake, config_file, format_)
    if as_of is None:
        answer = questions.offsets(at, group, topic, max_rows(limit, settings.format))
        total = questions.count_offsets(at, group, topic)
    else:
        with Progress(quiet=True) as progress:
            progress.say(f"looking up offsets as of {as_of}")
            answer = offsets_as_of(at, to_ms(as_of), group, topic, limit or None, progress.advance)
        total = answer.num_rows
    if not answer.num_rows and (group is not None or topic is not None):
        questions.check_committed(at, group, topic)
    write(answer, settings.format, _OFFSETS_SHOWN, limit, total=total)


@app.command(
    rich_help_panel=QUESTIONS,
    epilog=examples(
        "offsetlake groups",
        "offsetlake groups --group 'bulk-*' --state Empty",
        "offsetlake groups --as-of 2026-11-21T05:38:54",
    ),
)
@limited_memory()
def groups(
    group: GroupPatternOption = None,
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help="Only groups in this state.")] = None,
    group_type: Annotated[
        Literal["classic", "consumer", "share", "streams"] | None,
        typer.Option("--type", help="Only groups of this type."),
    ] = None,
    as_of: AsOfOption = None,
    limit: LimitOption = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Every group: type, state, members, subscription, number of offsets, now or as of a time."""
    settings, at = opened(lake, config_file, format_)
    if as_of is None:
        found = questions.groups(at, group, state, group_type)
    else:
        with Progress(quiet=True) as progress:
            progress.say(f"looking up groups as of {as_of}")
            found = groups_as_of(at, to_ms(as_of), group, state, group_type, progress.advance)
    write(questions.check_known(at, found, group), settings.format, _GROUPS_SHOWN, limit)


@app.command(
    rich_help_panel=QUESTIONS,
    epilog=examples("offsetlake history --group billing --topic orders --partition 0 --limit 20"),
)
def history(
    group: Annotated[str, typer.Option("--group", metavar="GROUP", help="The group.")],
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="The topic.")],
    partition: Annotated[int, typer.Option("--partition", metavar="P", help="The partition.")],
    limit: LimitOption = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Every commit of one partition by one group, newest first: where it was when, what jumped back, and who did it."""
    settings, at = opened(lake, config_file, format_)
    questions.check_committed(at, group, topic, partition)
    answer = questions.history(at, group, topic, partition, limit or None)
    write(answer, settings.format, _HISTORY_SHOWN, limit)


@app.command(
    rich_help_panel=QUESTIONS,
    epilog=examples(
        "offsetlake audit-events --lake example/lake --group 'bill*' --since 2026-01-31T14:00",
        "offsetlake audit-events --lake example/lake --principal User:carol --format csv",
    ),
)
def audit_events(
    group: GroupPatternOption = None,
    principal: Annotated[
        str | None,
        typer.Option("--principal", metavar="PRINCIPAL", help="Only by this one: User:alice, os:alice."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only what was from then on: ms or ISO 8601.")
    ] = None,
    limit: LimitOption = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """List who did what, newest first: deletions and commits that the serving process recorded, and writes of jobs."""
    settings, at = opened(lake, config_file, format_)
    found = questions.audit_events(at, group, principal, None if since is None else to_ms(since), limit or None)
    write(questions.check_known(at, found, group), settings.format, _AUDIT_EVENTS_SHOWN, limit)


@app.command(
    rich_help_panel=QUESTIONS,
    epilog=examples(
        'offsetlake sql "SELECT group_id, count(*) AS commits FROM offset_commits GROUP BY group_id"',
        'offsetlake sql "SELECT * FROM runs" --format json',
    ),
)
@limited_memory()
def sql(
    statement: Annotated[
        str,
        typer.Argument(
            metavar="SELECT",
            help=f"A SELECT in DataFusion's dialect, over {', '.join(TABLES)}, and the views of `offsetlake audit`.",
        ),
    ],
    limit: LimitOption = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Ask anything in SQL, of all tables and views of the lake; it only reads."""
    settings, at = opened(lake, config_file, format_, as_it_is=True)
    with Progress(quiet=True) as progress:
        progress.say("running the query")
        found = select(at, statement)
    write(found, settings.format, limit=limit)


@app.command(
    rich_help_panel=QUESTIONS,
    epilog=examples("offsetlake transactions", "offsetlake transactions --open-longer-than 15m --format json"),
)
def transactions(
    open_longer_than: Annotated[
        str, typer.Option("--open-longer-than", metavar="DURATION", help="Only those: 15m, 1h.")
    ] = "0s",
    now: NowOption = None,
    limit: LimitOption = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Open transactions: by which producer, since when, and the offsets each blocks; a hanging one is never ended."""
    settings, at = opened(lake, config_file, format_)
    instant = now_ms() if now is None else to_ms(now)
    found = questions.transactions(at, instant, duration_ms(open_longer_than))
    ages = [None if age is None else to_duration(about(age)) for age in found["age_ms"].to_pylist()]
    write(found.append_column("age", pa.array(ages, pa.string())), settings.format, _TRANSACTIONS_SHOWN, limit)


@app.command(
    rich_help_panel=QUESTIONS, epilog=examples("offsetlake alterations", "offsetlake alterations --group billing")
)
def alterations(
    group: GroupPatternOption = None,
    outcome: Annotated[
        Literal["planned", "done", "refused"] | None, typer.Option("--outcome", help="Only those that came to this.")
    ] = None,
    limit: LimitOption = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Offsets set by hand or by repair, newest first: from what to what, by which run, and what came of it."""
    settings, at = opened(lake, config_file, format_)
    found = questions.alterations(at, group, outcome, limit or None)
    write(questions.check_known(at, found, group), settings.format, _ALTERATIONS_SHOWN, limit)


@app.command(
    rich_help_panel=QUESTIONS,
    epilog=examples("offsetlake tombstones", "offsetlake tombstones --group 'bulk-*' --outcome refused"),
)
def tombstones(
    group: GroupPatternOption = None,
    outcome: Annotated[
        Literal["planned", "withdrawn", "emitted", "refused", "gone"] | None,
        typer.Option("--outcome", help="Only decisions that came to this."),
    ] = None,
    limit: LimitOption = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Decisions on what is to go, or went: each with its rule, its evidence, and what became of it."""
    settings, at = opened(lake, config_file, format_)
    found = questions.tombstones(at, group, outcome, limit or None)
    write(questions.check_known(at, found, group), settings.format, _TOMBSTONES_SHOWN, limit)
