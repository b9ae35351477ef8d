"""`offsetlake lag`: how far behind groups are, and how they do; how far behind one was over time."""

from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.compute as pc
import typer

from offsetlake.cli.commands.options import (
    QUESTIONS,
    ConfigOption,
    FormatOption,
    GroupPatternOption,
    LakeOption,
    LimitOption,
    TopicOption,
    app,
    examples,
    opened,
)
from offsetlake.cli.output import Progress, tell, write
from offsetlake.errors import BadRequest
from offsetlake.lake.engine import limited_memory
from offsetlake.queries.lag import behind, lag_of_groups, lag_of_partitions, shown_status
from offsetlake.queries.lag_over_time import lag_over_time
from offsetlake.util.times import to_ms

# As in `cli/commands/questions.py`.
_GROUPS_SHOWN = {
    "group_id": 1, "status": 1, "lag": 1, "behind": 2, "partitions": 3, "not_ok": 2, "topic": 4, "partition": 4,
}  # fmt: skip
_PARTITIONS_SHOWN = {
    "group_id": 1, "topic": 1, "partition": 1, "status": 1, "committed_offset": 3, "end_offset": 3, "lag": 1,
    "behind": 2, "commit_timestamp": 4, "asked_timestamp": 5,
}  # fmt: skip


@app.command(
    rich_help_panel=QUESTIONS,
    epilog=examples(
        "offsetlake lag --lake /lakes/prod --status STOP",
        "offsetlake lag --lake /lakes/prod --group 'check*' --partitions",
        "offsetlake lag --lake /lakes/prod --group checkout --over-time --format csv",
    ),
)
@limited_memory()
def lag(
    group: GroupPatternOption = None,
    topic: TopicOption = None,
    status: Annotated[
        Literal["OK", "UNKNOWN", "WARN", "STOP", "STALL", "REWIND"] | None,
        typer.Option("--status", help="Only groups, or partitions, that do so."),
    ] = None,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Each partition; without, each group and its worst partition.")
    ] = False,
    over_time: Annotated[
        bool, typer.Option("--over-time", help="Of one group, each time ends were recorded; with --group alone.")
    ] = False,
    now: Annotated[
        str | None,
        typer.Option(
            "--now",
            metavar="TIME",
            help="Judge for this instant, by what was known then: ms or ISO 8601. "
            "[dim]default: when ends were asked last[/]",
        ),
    ] = None,
    limit: LimitOption = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """How far behind each group is, in records and in time, and its status: OK, UNKNOWN, WARN, STOP, STALL or REWIND.

    The status is unknown until two commits of a partition and two observations of its log end are on record.
    """
    settings, at = opened(lake, config_file, format_)
    if over_time:
        if group is None or partitions or (topic, status, now) != (None, None, None):
            raise BadRequest("--over-time is of one group: name it with --group, and no more than that and --limit")
        write(lag_over_time(at, group), settings.format, limit=limit)
        return
    with Progress(quiet=True) as progress:
        progress.say("computing lag")
        found = lag_of_partitions(at, group, topic, None if now is None else to_ms(now))
    if unknown := found["lag"].null_count:
        tell(f"{unknown:,} of {found.num_rows:,} partitions: the last cycle was not told where they end")
    answer = found if partitions else lag_of_groups(found)
    if status is not None:
        answer = answer.filter(pc.equal(answer["status"], status))
    answer = answer.append_column("behind", pa.array(behind(answer), pa.string()))
    if settings.format == "table":
        at_status = answer.column_names.index("status")
        answer = answer.set_column(at_status, "status", pa.array(shown_status(answer), pa.string()))
    write(answer, settings.format, _PARTITIONS_SHOWN if partitions else _GROUPS_SHOWN, limit)
