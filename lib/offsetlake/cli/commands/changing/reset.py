"""`offsetlake reset`: the strategies of `kafka-consumer-groups --reset-offsets` by the same names, and one more."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated

import pyarrow as pa
import typer

from offsetlake.cli.commands.changing.changes import ExecuteOption, LiveOption, live_changes
from offsetlake.cli.commands.changing.plans import ALTERATIONS_SHOWN, change_offsets, export_plan
from offsetlake.cli.commands.completion import complete_group, complete_topic
from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import CHANGES, FORMAT, LAKE_AND_LOG, TIMES, command
from offsetlake.cli.output import write_note
from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.log.cluster.admin_client import cluster_admin
from offsetlake.pipeline.changes.reset import Reset, compute_of, time_before, time_to_reset_to
from offsetlake.pipeline.changes.reset import reset as plan_reset
from offsetlake.pipeline.changes.share_groups import reset_share_group
from offsetlake.pipeline.changes.targets import parse_scope
from offsetlake.util.times import to_iso

_GroupArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[GROUP]", autocompletion=complete_group, help="The group; optional if a file contains groups."
    ),
]
_TopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:P,...]",
        autocompletion=complete_topic,
        help="The partitions to reset; can be repeated.",
    ),
]
_AllTopicsOption = Annotated[
    bool, typer.Option("--all-topics", help="Reset all partitions that the group has offsets of.")
]
_ToEarliestOption = Annotated[bool, typer.Option("--to-earliest", help="Reset to the log start offsets.")]
_ToLatestOption = Annotated[bool, typer.Option("--to-latest", help="Reset to the log end offsets.")]
_ToCurrentOption = Annotated[
    bool, typer.Option("--to-current", help="Reset to the committed offsets, for example to export them.")
]
_ToOffsetOption = Annotated[int | None, typer.Option("--to-offset", metavar="N", min=0, help="Reset to this offset.")]
_ShiftByOption = Annotated[
    int | None, typer.Option("--shift-by", metavar="N", help="Move by N records, back if N is negative.")
]
_ToDatetimeOption = Annotated[
    str | None,
    typer.Option("--to-datetime", metavar="TIME", help=f"Reset to the first record from this time on: {TIMES}."),
]
_ByDurationOption = Annotated[
    str | None,
    typer.Option("--by-duration", metavar="DURATION", help="Reset to the first record of the last 36h, 1w, PT1H, ..."),
]
_FromFileOption = Annotated[
    str | None, typer.Option("--from-file", metavar="CSV", help="Read the offsets from an exported file.")
]
_FromGroupOption = Annotated[
    str | None,
    typer.Option(
        "--from-group", metavar="GROUP", autocompletion=complete_group, help="Copy the offsets of another group."
    ),
]
_OnlyIfOption = Annotated[
    int | None,
    typer.Option("--only-if", metavar="N", min=0, help="Refuse partitions whose committed offset is not N."),
]
_ShareOption = Annotated[
    bool, typer.Option("--share", help="Reset the start offsets of a share group, through its cluster.")
]
_ExportOption = Annotated[
    bool, typer.Option("--export", help="Print the plan as the CSV that kafka-consumer-groups reads.")
]


@command(
    CHANGES,
    FORMAT | LAKE_AND_LOG,
    "offsetlake reset billing --all-topics --to-current --lake example/lake --export > offsets.csv",
    "offsetlake reset billing --topic orders:0 --to-offset 1000 --only-if 1120 --lake example/lake --execute",
    "offsetlake reset billing --from-file offsets.csv --lake example/lake --execute",
    "offsetlake reset billing --all-topics --shift-by -100 --live --lake example/lake",
    "offsetlake reset checkout --all-topics --to-datetime 2026-01-31T14:05 --lake /lakes/prod "
    "--bootstrap broker-1:9092",
    "offsetlake reset thumbnailer --share --topic orders --to-earliest --lake /lakes/prod --bootstrap broker-1:9092",
)
def reset(
    context: CommandContext,
    group: _GroupArgument = None,
    topic: _TopicOption = None,
    all_topics: _AllTopicsOption = False,
    to_earliest: _ToEarliestOption = False,
    to_latest: _ToLatestOption = False,
    to_current: _ToCurrentOption = False,
    to_offset: _ToOffsetOption = None,
    shift_by: _ShiftByOption = None,
    to_datetime: _ToDatetimeOption = None,
    by_duration: _ByDurationOption = None,
    from_file: _FromFileOption = None,
    from_group: _FromGroupOption = None,
    only_if: _OnlyIfOption = None,
    share: _ShareOption = False,
    export: _ExportOption = False,
    live: LiveOption = False,
    execute: ExecuteOption = False,
) -> None:
    """Reset the offsets of a group without members. Log start and end offsets are known only with --bootstrap.

    With --live, groups with members are reset, too, if `offsetlake serve` serves the log: it revokes the partitions
    from their owners, refuses later commits of these, sets the offsets and assigns the partitions again. Members
    continue from there. Members that do not respond are removed; the plan says after how many seconds.

    With --live, the new offsets are those of the plan, whatever members have committed since; --only-if applies to the
    plan. Without members, or if the log is not served, --live changes nothing.

    With --share, the start offsets of a share group are reset. The delivery states of their records are discarded: each
    record from the start offset on is delivered again, for the first time. Nothing restores the delivery states.
    """
    if share and (live or export):
        raise BadRequest("--share excludes --live and --export.")
    if export and (execute or context.options["format"]):
        raise BadRequest("--export only prints the plan: omit --execute and --format.")
    strategies = {
        "to_earliest": to_earliest or None,
        "to_latest": to_latest or None,
        "to_current": to_current or None,
        "to_offset": to_offset,
        "shift_by": shift_by,
        "to_datetime": to_datetime,
        "by_duration": by_duration,
        "from_file": from_file,
        "from_group": from_group,
    }
    now = context.now
    request = _reset(group, _scope(topic, all_topics=all_topics), strategies, only_if, now)
    request = replace(request, live=live_changes(context) if live else None)

    def plan(lake: Lake) -> pa.Table:
        connection = context.log.connection
        with nullcontext() if connection is None else cluster_admin(connection) as admin:
            return (reset_share_group if share else plan_reset)(lake, request, admin, now)

    if export:
        export_plan(context, plan, with_group=group is None)
    else:
        change_offsets(context, "reset", "alterations", plan, ALTERATIONS_SHOWN, execute=execute)


def _reset(
    group: str | None,
    scope: dict[str, list[int] | None] | None,
    strategies: Mapping[str, object],
    only_if: int | None,
    now: int,
) -> Reset:
    """Return what the options request; raise BadRequest for an invalid combination."""
    selected = {name: value for name, value in strategies.items() if value is not None}
    if len(selected) != 1:
        options = ", ".join(map(_flag, strategies))
        raise BadRequest(f"Specify where to reset to by exactly one of {options}.")
    [(strategy, value)] = selected.items()
    copies = strategy in ("from_file", "from_group")
    if copies and scope is not None:
        raise BadRequest(f"{_flag(strategy)} determines the partitions: omit --topic and --all-topics.")
    if not copies and scope is None:
        raise BadRequest("Specify what to reset: --all-topics, or --topic TOPIC[:P,...].")
    if group is None and strategy != "from_file":
        raise BadRequest("Specify the group to reset.")
    read_time = {"to_datetime": time_to_reset_to, "by_duration": time_before}.get(strategy)
    timestamp = None if read_time is None else read_time(str(value), now)
    if timestamp is not None:
        future = ", in the future: partitions without records after it are reset to their log end" * (timestamp > now)
        write_note(f"{_flag(strategy)} {str(value)!r} is {to_iso(timestamp)} (UTC){future}.")
    number = value if isinstance(value, int) else 0
    return Reset(
        group, strategy, compute_of(strategy, number), scope or {}, timestamp, str(value) if copies else "", only_if
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _scope(topics: list[str] | None, *, all_topics: bool) -> dict[str, list[int] | None] | None:
    """Return the partitions by topic of `--topic T:0,1`, empty for `--all-topics`; None if neither is given."""
    if all_topics and topics:
        raise BadRequest("--all-topics and --topic are mutually exclusive.")
    if not all_topics and not topics:
        return None
    return parse_scope(topics or ())
