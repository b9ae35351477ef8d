"""`offsetlake lag`: lag and status of groups and partitions, now, at a time, or over time."""

from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.compute as pc
import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.each_lake import each_lake
from offsetlake.cli.commands.options import FLEET, LAKE, QUESTIONS, ROWS, GroupPatternOption, TopicOption, command
from offsetlake.cli.output import write_note
from offsetlake.cli.progress import Progress
from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import limited_memory
from offsetlake.location.locate import locate
from offsetlake.queries.lag import behind, lag_of_groups, lag_of_partitions, shown_status
from offsetlake.queries.lag_over_time import lag_over_time
from offsetlake.queries.standby import standby_lag
from offsetlake.util.times import to_ms

# The columns of tables for people, each with its importance (`offsetlake.cli.tables.Column`).
_GROUPS_SHOWN = {
    "group_id": 1, "status": 1, "lag": 1, "behind": 2, "partitions": 3, "not_ok": 2, "topic": 4, "partition": 4,
}  # fmt: skip
_PARTITIONS_SHOWN = {
    "group_id": 1, "topic": 1, "partition": 1, "status": 1, "committed_offset": 3, "end_offset": 3, "lag": 1,
    "behind": 2, "commit_timestamp": 4, "asked_timestamp": 5,
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
        Literal["OK", "UNKNOWN", "WARN", "STOP", "STALL", "REWIND"] | None,
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
            help="The time to evaluate at, from what was known then: ms or ISO 8601. "
            "[dim]default: the latest recording of log end offsets[/]",
        ),
    ] = None,
) -> None:
    """Show the lag of each group in records and time, and its status: OK, UNKNOWN, WARN, STOP, STALL or REWIND.

    The status is UNKNOWN until two commits of a partition and two observations of its log end offset are recorded.
    """
    lake = context.open_lake()
    if over_time:
        if group is None or partitions or (topic, status, now, standby) != (None,) * 4:
            raise BadRequest("--over-time requires --group, and cannot be combined with options other than --limit.")
        context.write(lag_over_time(lake, group))
        context.note_dropped(lake)
        return
    if standby is not None:
        if partitions or (topic, status, now) != (None, None, None):
            raise BadRequest("--standby cannot be combined with options other than --group and --limit.")
        context.write(standby_lag(lake, Lake.open(locate(standby)), group), _STANDBY_SHOWN)
        return
    by_partition = _by_partition(lake, group, topic, None if now is None else to_ms(now))
    rows = by_partition if partitions else lag_of_groups(by_partition)
    if status is not None:
        rows = rows.filter(pc.equal(rows["status"], status))
    rows = rows.append_column("behind", pa.array(behind(rows), pa.string()))
    if context.settings.format == "table":
        shown = pa.array(shown_status(rows), pa.string())
        rows = rows.set_column(rows.column_names.index("status"), "status", shown)
    context.write(rows, _PARTITIONS_SHOWN if partitions else _GROUPS_SHOWN)


def _by_partition(lake: Lake, group: str | None, topic: str | None, now: int | None) -> pa.Table:
    """Return the lag of each partition, and write a note about those of which it is unknown."""
    with Progress(quiet=True) as progress:
        progress.say("computing lag")
        rows = lag_of_partitions(lake, group, topic, now)
    if unknown := rows["lag"].null_count:
        write_note(
            f"The lag of {unknown:,} of {rows.num_rows:,} partitions is unknown: the last cycle did not read their log "
            "end offsets."
        )
    return rows
