"""The command that queries the state of share groups; it does not start Spark."""

from typing import Annotated

import typer

from offsetlake.cli.commands.completion import complete_topic
from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.each_lake import each_lake
from offsetlake.cli.commands.options import FLEET, LAKE, QUESTIONS, ROWS, GroupPatternOption, command
from offsetlake.cli.commands.querying.questions import AsOfOption
from offsetlake.cli.progress import Progress
from offsetlake.lake.sql.engine import limited_memory

_SHARE_SHOWN = {
    "group_id": 1, "topic": 1, "topic_id": 6, "partition": 1, "start_offset": 1, "end_offset": 2,
    "in_flight_records": 2, "available_records": 3, "acknowledged_records": 3, "archived_records": 3,
    "archived_at_limit": 3, "max_delivery_count": 3, "lag": 2, "log_timestamp": 5,
}  # fmt: skip
_BATCHES_SHOWN = {
    "group_id": 1, "topic": 1, "topic_id": 3, "partition": 1, "first_offset": 1, "last_offset": 1, "delivery_state": 1,
    "delivery_count": 1,
}  # fmt: skip


@command(
    QUESTIONS,
    ROWS | LAKE | FLEET,
    "offsetlake share",
    "offsetlake share --group thumbnailer --topic orders --partition 0 --batches",
    "offsetlake share --as-of 2026-11-21T05:38:53 --format json",
)
@each_lake()
@limited_memory()
def share(
    context: CommandContext,
    group: GroupPatternOption = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", metavar="TOPIC", autocompletion=complete_topic, help="Only this topic, by its name or its ID."
        ),
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", metavar="P", help="Only this partition.")] = None,
    batches: Annotated[
        bool, typer.Option("--batches", help="Show the delivery state and count of each range of records in flight.")
    ] = False,
    as_of: AsOfOption = None,
) -> None:
    """Show the share partitions of share groups: start offset, records in flight by state, deliveries and lag.

    The log does not contain why a record was archived. Records with fewer deliveries than the limit were rejected or
    were not to be delivered. The column archived_at_limit has the number of archived records that were delivered five
    times or more: the default limit, after which a record is archived.
    """
    instant = None if as_of is None else context.instant("--as-of", as_of)
    with Progress(quiet=True) as progress:
        progress.say("looking up share partitions")
        rows = context.questions.share(
            group, topic, partition, batches=batches, as_of=instant, advance=progress.advance
        )
    context.write(rows, _BATCHES_SHOWN if batches else _SHARE_SHOWN)
