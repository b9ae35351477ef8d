"""`offsetlake lag`: lag and status of groups and partitions, now, at a time, or over time."""

from typing import Annotated, Literal

import pyarrow as pa
import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.each_lake import each_lake
from offsetlake.cli.commands.options import (
    FLEET,
    LAKE,
    QUESTIONS,
    ROWS,
    TIMES,
    GroupPatternOption,
    TopicOption,
    command,
)
from offsetlake.cli.progress import Progress
from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import locate
from offsetlake.lake.sql.engine import limited_memory
from offsetlake.queries.lag import behind, shown_status
from offsetlake.queries.lag_over_time import lag_over_time
from offsetlake.queries.standby import standby_lag

# The columns of tables for people, each with its importance (`offsetlake.cli.tables.Column`).
_GROUPS_SHOWN = {
    "group_id": 1, "status": 1, "lag": 1, "lag_at_most": 2, "behind": 2, "partitions": 3, "not_ok": 2,
    "lag_unknown": 2, "no_commit": 3, "deleted_before_read": 3, "topic": 4, "partition": 4, "asked_timestamp": 5,
}  # fmt: skip
_PARTITIONS_SHOWN = {
    "group_id": 1, "topic": 1, "partition": 1, "status": 1, "committed_offset": 3, "start_offset": 4, "end_offset": 3,
    "lag": 1, "lag_at_most": 3, "deleted_before_read": 3, "behind": 2, "client_id": 3, "client_host": 4,
    "commit_timestamp": 4, "asked_timestamp": 5,
}  # fmt: skip


_STANDBY_SHOWN = {
    "group_id": 1, "topic": 1, "partition": 1, "committed_offset": 2, "translated_offset": 2, "not_translated": 1,
    "standby_topic": 4, "standby_offset": 3, "translated_timestamp": 1,
}  # fmt: skip


@command(
    QUESTIONS,
    ROWS | LAKE | FLEET,
    "offsetlake lag --lake /lakes/prod --status STOP",
    "offsetlake lag --lake /lakes/prod --group 'check*' --partitions",
    "offsetlake lag --lake /lakes/prod --group checkout --over-time --format csv",
    "offsetlake lag --lake /lakes/prod --standby /lakes/standby",
)
@each_lake()
@limited_memory()
def lag(
    context: CommandContext,
    group: GroupPatternOption = None,
    topic: TopicOption = None,
    status: Annotated[
        Literal["OK", "UNKNOWN", "NO_COMMIT", "WARN", "STOP", "STALL", "REWIND", "DELETED_BEFORE_READ", "BEYOND_END"]
        | None,
        typer.Option("--status", help="Only groups, or partitions, with this status."),
    ] = None,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Show each partition instead of each group with its worst partition.")
    ] = False,
    standby: Annotated[
        str | None,
        typer.Option("--standby", metavar="DIR", help="Show how far the translated offsets in this lake are behind."),
    ] = None,
    over_time: Annotated[
        bool,
        typer.Option("--over-time", help="Show the lag of one group each time log end offsets were recorded."),
    ] = False,
    now: Annotated[
        str | None,
        typer.Option(
            "--now",
            metavar="TIME",
            help=f"The time to evaluate at, from what was known then: {TIMES}. "
            "[dim]default: the latest recording of log end offsets[/]",
        ),
    ] = None,
) -> None:
    """Show the lag of each group in records and time, and the status of its consumers.

    The rows are those of kafka-consumer-groups --describe: partitions with a committed offset, and those that members
    are assigned; also the other partitions of topics that members are subscribed to. The status is OK, one of Burrow's
    alarms (WARN, STOP, STALL, REWIND), or:

    UNKNOWN: the log end offset is not known, or fewer than two commits or observations of it are recorded.

    NO_COMMIT: nothing is committed. The lag is between 0 and lag_at_most, by the reset policy of the consumer.

    DELETED_BEFORE_READ: the committed offset is below the log start. Lag counts from the log start.

    BEYOND_END: the committed offset is above the log end: the topic lost records, or was deleted and created again.
    """
    if over_time:
        if group is None or partitions or (topic, status, now, standby) != (None,) * 4:
            raise BadRequest("--over-time requires --group, and cannot be combined with options other than --limit.")
        lake = context.open_lake()
        context.write(lag_over_time(lake, group))
        context.note_dropped(lake)
        context.note_unknown(lake, group)
        return
    if standby is not None:
        if partitions or (topic, status, now) != (None, None, None):
            raise BadRequest("--standby cannot be combined with options other than --group and --limit.")
        context.write(standby_lag(context.open_lake(), Lake.open(locate(standby)), group), _STANDBY_SHOWN)
        return
    instant = None if now is None else context.instant("--now", now)
    with Progress(quiet=True) as progress:
        progress.say("computing lag")
        rows = context.questions.lag(group, topic, status=status, partitions=partitions, now=instant)
    rows = rows.append_column("behind", pa.array(behind(rows), pa.string()))
    if context.settings.format == "table":
        shown = pa.array(shown_status(rows), pa.string())
        rows = rows.set_column(rows.column_names.index("status"), "status", shown)
    context.write(rows, _PARTITIONS_SHOWN if partitions else _GROUPS_SHOWN)
