"""`offsetlake translate`: sets the offsets of groups at another cluster, to which a replicator copies topics."""

from collections.abc import Callable
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
import typer

from offsetlake.cli.commands.changing.changes import ExecuteOption, GroupArgument
from offsetlake.cli.commands.changing.plans import change_offsets
from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import CHANGES, FORMAT, LAKE_AND_LOG, TIMES, command
from offsetlake.cli.output import write_note
from offsetlake.cli.progress import Progress
from offsetlake.errors import BadRequest, LogUnavailable
from offsetlake.lake.foreign.guard import open_verified
from offsetlake.pipeline.changes.translation.mirror_topics import SyncsLocation, offset_syncs
from offsetlake.pipeline.changes.translation.translate import Translation, plan_translation, source_offsets
from offsetlake.pipeline.runner import up_to_date_copy
from offsetlake.util.amounts import counted
from offsetlake.util.times import now_ms

# The columns of a plan for people by their headings, each with its importance (`offsetlake.cli.tables.Column`).
_SHOWN = {
    "group_id": 1, "topic": 1, "partition": 1, "source_offset": 2, "current_offset": 3, "new_offset": 1, "verdict": 1,
    "read_twice": 1, "skipped": 2, "outcome": 2, "reason": 1, "evidence": 4,
}  # fmt: skip


@command(
    CHANGES,
    FORMAT | LAKE_AND_LOG,
    "offsetlake translate checkout --lake /lakes/prod --to broker-2:9092 --to-lake /lakes/standby",
    "offsetlake translate '*' --lake /lakes/prod --to broker-2:9092 --to-lake /lakes/standby --execute",
    "offsetlake translate '*' --as-of 2026-01-31T14:05 --lake /lakes/prod --to broker-2:9092 --to-lake /lakes/standby",
)
def translate(
    context: CommandContext,
    group: GroupArgument,
    to: Annotated[str, typer.Option("--to", metavar="HOST:PORT", help="The cluster to which topics are replicated.")],
    to_lake: Annotated[str, typer.Option("--to-lake", metavar="DIR", help="The folder of the lake of that cluster.")],
    to_kafka_config: Annotated[
        str | None,
        typer.Option("--to-kafka-config", metavar="FILE", help="A Kafka client properties file for that cluster."),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="TIME", help=f"The time of the offsets: {TIMES}. [dim]default: the newest[/]"),
    ] = None,
    syncs_at: Annotated[
        SyncsLocation,
        typer.Option(
            "--syncs-at",
            help="The cluster with the offset syncs: offset-syncs.topic.location of MirrorMaker 2. "
            "[dim]default: source[/]",
            show_default=False,
        ),
    ] = "source",
    alias: Annotated[
        str | None,
        typer.Option("--alias", help="The alias in the name of the topic with offset syncs, if there are several."),
    ] = None,
    continuous: Annotated[
        bool,
        typer.Option(
            "--continuous",
            help="Omit offsets that cannot be translated, and groups that ever had members at the target.",
        ),
    ] = False,
    at_most_once: Annotated[
        bool,
        typer.Option("--at-most-once", help="Skip records, rather than read them twice, where it is not exact."),
    ] = False,
    execute: ExecuteOption = False,
) -> None:
    """Set the offsets of groups at a cluster to which MirrorMaker 2 replicates topics, so that no record is skipped.

    --lake and --bootstrap are the source. The verdict of an offset is exact (no processed record is read again), safe
    (at most `read_twice` records are read again), ahead (with --at-most-once: at most `skipped` records are skipped) or
    unknown (refused). Groups with members at the target are refused.

    --continuous is for a standby, and is repeated every few minutes: it succeeds if some offsets cannot be translated.
    """
    target = CommandContext(
        {
            **context.options,
            "lake": to_lake,
            "log": None,
            "bootstrap": to,
            "kafka_config": to_kafka_config,
        },
        arguments=context.arguments,
        now=context.now,
    )
    connection = target.log.connection
    if connection is None:
        raise BadRequest("--to must be the address of a cluster.")
    as_of_ms = None if as_of is None else context.instant("--as-of", as_of, of_plan=True)
    with Progress() as progress:
        offsets, is_available = _source(context, group, as_of_ms, progress.say)
        source = context.log.connection if is_available else None
        syncs = offset_syncs(source, connection, syncs_at, alias)
    if syncs is None or not syncs.topics:
        write_note(f"No offset syncs at the {syncs_at} are available.")
    request = Translation(offsets, source, connection, syncs, standby=continuous, at_most_once=at_most_once)
    change_offsets(
        target,
        "translate",
        "alterations",
        lambda lake: _without_refused(plan_translation(lake, request, now_ms()), omit=continuous),
        _SHOWN,
        execute=execute,
    )


def _without_refused(plan: pa.Table, *, omit: bool) -> pa.Table:
    """Omit the rows with a reason, and write a note about them."""
    refused = len(plan) - plan["reason"].null_count
    if not omit or not refused:
        return plan
    write_note(
        f"{refused:,} of {counted(len(plan), 'offset')} cannot be translated: omit --continuous to see the reasons."
    )
    return plan.filter(pc.is_null(plan["reason"]))


def _source(
    context: CommandContext, pattern: str, as_of_ms: int | None, say: Callable[[str], None]
) -> tuple[pa.Table, bool]:
    """Return the offsets of the source, and whether its log is available; if not, as far as its lake has read it."""
    lake = open_verified(context.settings.lake)
    context.note_unread(lake)
    try:
        with up_to_date_copy(lake, context.log, say) as copy:
            return source_offsets(copy, pattern, as_of_ms), True
    except LogUnavailable as error:
        write_note(f"The offsets are those of the lake, because the log of the source cannot be read: {error}")
    return source_offsets(lake, pattern, as_of_ms), False
