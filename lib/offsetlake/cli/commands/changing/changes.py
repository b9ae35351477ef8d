"""`offsetlake cleanup`, `restore` and `undelete`: each shows a plan first, and executes it with `--execute`."""

from typing import TYPE_CHECKING, Annotated

import typer

from offsetlake.cli.commands.changing.plans import ALTERATIONS_SHOWN, TOMBSTONES_SHOWN, change_offsets
from offsetlake.cli.commands.completion import complete_group, complete_topic
from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import CHANGES, FORMAT, LAKE_AND_LOG, TIMES, TopicOption, command
from offsetlake.errors import BadRequest
from offsetlake.pipeline.changes import reset as offset_resets
from offsetlake.pipeline.changes.cleanup import plan_cleanup
from offsetlake.pipeline.changes.live import LiveChange
from offsetlake.pipeline.changes.restore import restore_as_of, restore_run
from offsetlake.pipeline.changes.targets import parse_scope
from offsetlake.queries.history.before import parse_position
from offsetlake.util.times import now_ms

if TYPE_CHECKING:
    from offsetlake.pipeline.runner import Plan

LiveOption = Annotated[
    bool,
    typer.Option(
        "--live",
        help="Also set offsets of groups with members, without stopping them, if `offsetlake serve` serves the log.",
    ),
]
ExecuteOption = Annotated[bool, typer.Option("--execute", help="Execute the plan, and show the outcome.")]
GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", autocompletion=complete_group, help="A group, or a shell pattern of groups: * ? \\[abc]."
    ),
]


def live_changes(context: CommandContext, *, replaces_commits: bool = False) -> LiveChange:
    """Return how groups with members are changed with `--live`; raise BadRequest if the log is that of a cluster."""
    if context.log.folder is None:
        raise BadRequest(
            "--live requires a log in a folder that `offsetlake serve` serves: specify it with --log. The coordinator "
            "of a Kafka cluster cannot set offsets while members run."
        )
    return LiveChange(context.log.folder, replaces_commits)


@command(
    CHANGES,
    FORMAT | LAKE_AND_LOG,
    "offsetlake cleanup old-billing --lake example/lake",
    "offsetlake cleanup billing --topic orders-v1 --lake example/lake --execute",
    "offsetlake cleanup 'old-*' --lake example/lake --execute",
)
def cleanup(
    context: CommandContext, group: GroupArgument, topic: TopicOption = None, execute: ExecuteOption = False
) -> None:
    """Delete groups with all their offsets, or only their offsets of one topic. Groups with members are refused.

    Share groups are deleted through their cluster (--bootstrap), with the state of their share partitions.
    """
    plan: Plan = lambda lake: plan_cleanup(  # noqa: E731
        lake, group, topic, now_ms(), live=context.log.connection is not None
    )
    change_offsets(context, "cleanup", "tombstones", plan, TOMBSTONES_SHOWN, execute=execute)


@command(
    CHANGES,
    FORMAT | LAKE_AND_LOG,
    "offsetlake reset billing --all-topics --shift-by -100 --lake example/lake --execute",
    "offsetlake restore --run 7 --lake example/lake --execute",
    "offsetlake restore billing --as-of 2026-01-31T14:00:05 --lake example/lake",
    "offsetlake restore billing --before 9:3 --topic orders:0 --lake example/lake",
)
def restore(
    context: CommandContext,
    group: Annotated[
        str | None,
        typer.Argument(
            metavar="[GROUP]", autocompletion=complete_group, help="A group, or a shell pattern; not with --run."
        ),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="TIME", help=f"Restore the offsets of this time: {TIMES}."),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--before",
            metavar="P:N",
            help="Restore the offsets from before the record at this log position, as `history` shows it.",
        ),
    ] = None,
    run: Annotated[
        int | None, typer.Option("--run", metavar="N", help="Undo run N: restore the offsets from before it.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC[:P,...]",
            autocompletion=complete_topic,
            help="Only this topic or these partitions; can be repeated.",
        ),
    ] = None,
    live: LiveOption = False,
    execute: ExecuteOption = False,
) -> None:
    """Restore offsets as of a time, from before a record, or from before a run that reset, cleaned up or expired them.

    Several records can have the same time: --before tells them apart by their log positions. Offsets that the group had
    not committed by then do not change. With --live, the members of a group that runs continue from the restored
    offsets, whatever they have committed since; see `offsetlake reset --help`.

    Of share groups, the start offsets are restored, through their cluster. The delivery states of records are not.
    """
    rewind = live_changes(context, replaces_commits=True) if live else None
    through_cluster = context.log.connection is not None
    if group is not None and (as_of is None) != (before is None) and run is None:
        name, scope = group, parse_scope(topic or ())
        moment = parse_position(before) if before is not None else context.instant("--as-of", str(as_of), of_plan=True)
        plan: Plan = lambda lake: restore_as_of(  # noqa: E731
            lake, name, moment, scope, now_ms(), rewind, through_cluster=through_cluster
        )
    elif run is not None and group is None and as_of is None and before is None and not topic:
        run_id = run
        plan = lambda lake: restore_run(lake, run_id, now_ms(), rewind, through_cluster=through_cluster)  # noqa: E731
    else:
        raise BadRequest("Specify what to restore: GROUP --as-of TIME, GROUP --before P:N, or --run N alone.")
    change_offsets(context, "restore", "alterations", plan, ALTERATIONS_SHOWN, execute=execute)


@command(
    CHANGES,
    FORMAT | LAKE_AND_LOG,
    "offsetlake undelete nightly-report --lake example/lake",
    "offsetlake undelete 'nightly-*' --topic orders --lake example/lake --execute",
)
def undelete(
    context: CommandContext, group: GroupArgument, topic: TopicOption = None, execute: ExecuteOption = False
) -> None:
    """Restore the last offsets of groups whose offsets expired or were deleted, from history."""
    plan: Plan = lambda lake: offset_resets.undelete(lake, group, topic, now_ms())  # noqa: E731
    change_offsets(context, "undelete", "alterations", plan, ALTERATIONS_SHOWN, execute=execute)
