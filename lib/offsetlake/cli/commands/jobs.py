"""The commands that run jobs: one job each, or all jobs of a cycle."""

import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from offsetlake.cli import job_summary
from offsetlake.cli.commands.completion import complete_group
from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import (
    JOB_FORMAT,
    JOBS,
    LAKE,
    LAKE_AND_LOG,
    ROWS,
    KafkaConfigOption,
    NowOption,
    command,
)
from offsetlake.cli.maintain_preview import print_preview
from offsetlake.cli.output import write, writing_to
from offsetlake.cli.progress import Progress
from offsetlake.errors import BadRequest
from offsetlake.lake.foreign.guard import open_verified
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline import runner
from offsetlake.pipeline.emit.decisions import read_selection
from offsetlake.pipeline.expire.what_if import what_if as evaluate
from offsetlake.pipeline.maintain.job import preview
from offsetlake.pipeline.runner import Expiry, FinishedJob
from offsetlake.queries.selection import check_known, like, name_or_pattern
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.util.times import kept_ms, to_duration

RetentionOption = Annotated[
    str | None,
    typer.Option("--retention", metavar="DURATION", help="Overrides the configured default retention: 7d, 36h, 60s."),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--bootstrap", metavar="HOST:PORT", help="A live cluster, to find topics that were deleted."),
]

# The columns of a table for people, each with its importance (`offsetlake.cli.tables.Column`).
_WHAT_IF_SHOWN = {
    "group_id": 1, "group_type": 4, "state": 3, "offsets": 2, "now": 1, "in_24_hours": 1, "in_7_days": 2,
    "in_30_days": 3, "kept": 4, "next_expiry_timestamp": 2, "group_goes": 3,
}  # fmt: skip


@command(
    JOBS,
    JOB_FORMAT | LAKE_AND_LOG,
    "offsetlake run",
    "offsetlake run --lake /lakes/copy --log /backup/kafka-data",
    "offsetlake run --lake /lakes/prod --bootstrap broker-1:9092",
)
def run(
    context: CommandContext,
    now: NowOption = None,
    retention: RetentionOption = None,
    emits: Annotated[
        bool, typer.Option("--emit", help="Also write the planned tombstones to the log, or through the live cluster.")
    ] = False,
) -> None:
    """Run a cycle: ingest new log records, compact them into state, and plan which offsets expire."""
    jobs = ("ingest", "compact", "expire", *(("emit",) if emits else ()))
    _run_jobs(context, jobs, context.log, _expiry(context, now, retention))


@command(JOBS, JOB_FORMAT | LAKE_AND_LOG, "offsetlake ingest --lake /lakes/orders --log /backup/kafka-data")
def ingest(context: CommandContext) -> None:
    """Read new records of the log into the history tables, each record exactly once."""
    _run_jobs(context, ("ingest",), context.log)


@command(JOBS, JOB_FORMAT | LAKE, "offsetlake compact --lake /lakes/orders")
def compact(
    context: CommandContext,
    through_run: Annotated[
        int | None,
        typer.Option("--through-run", metavar="N", min=0, help="Only history that run N or an earlier run ingested."),
    ] = None,
) -> None:
    """Update the tables of offsets, pending offsets and groups from history."""
    _run_jobs(context, ("compact",), through_run=through_run)


@command(
    JOBS,
    ROWS | {"lake": LAKE["lake"], "bootstrap": ClusterOption, "kafka_config": KafkaConfigOption} | LAKE,
    "offsetlake expire",
    "offsetlake expire --what-if --retention 3d",
    "offsetlake expire --what-if --now 2026-12-24 --format csv",
)
def expire(
    context: CommandContext,
    now: NowOption = None,
    retention: RetentionOption = None,
    what_if: Annotated[
        bool,
        typer.Option(
            "--what-if",
            help="Plan nothing: show by group what would expire and when. With --retention 3d, also in a column "
            "now_with_3d.",
        ),
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="PATTERN",
            autocompletion=complete_group,
            help="With --what-if: only groups that match a shell pattern.",
        ),
    ] = None,
    compacted_by: Annotated[
        int | None,
        typer.Option("--compacted-by", metavar="N", min=0, help="Fail if a run after run N has compacted the tables."),
    ] = None,
) -> None:
    """Evaluate the retention rules for every offset, and plan tombstones. No tombstone is written until `emit` runs."""
    if not what_if:
        if (group, context.limit) != (None, None):
            option = "--limit" if group is None else "--group"
            raise BadRequest(f"{option} requires --what-if; `offsetlake tombstones` shows what is planned.")
        cluster = context.log if context.options["bootstrap"] else None
        _run_jobs(context, ("expire",), cluster, _expiry(context, now, retention, compacted_by))
        return
    if compacted_by is not None:
        raise BadRequest("--compacted-by cannot be combined with --what-if, which plans nothing.")
    other = None if retention is None else _policy(context, retention)
    lake = open_verified(context.settings.lake)
    context.note_unread(lake)
    rows = like(evaluate(lake, context.settings.retention, other, _time(context, now)), name_or_pattern(lake, group))
    rows = check_known(lake, rows, group)
    if other is None:
        context.write(rows.drop_columns(["other_now"]), _WHAT_IF_SHOWN)
    else:
        column = f"now_with_{to_duration(other.default_ms)}"
        rows = rows.rename_columns([column if name == "other_now" else name for name in rows.column_names])
        context.write(rows, _WHAT_IF_SHOWN | {column: 1})


@command(
    JOBS,
    JOB_FORMAT | LAKE_AND_LOG,
    "offsetlake tombstones --outcome planned --group 'search*' --lake example/lake --format json > approved.jsonl",
    "offsetlake emit --only approved.jsonl --lake example/lake",
    "offsetlake emit --lake example/lake",
    "offsetlake emit --lake /lakes/prod --bootstrap broker-1:9092",
)
def emit(
    context: CommandContext,
    only: Annotated[
        Path | None,
        typer.Option(
            "--only", metavar="FILE", help="Only these tombstones: rows of `offsetlake tombstones --format json`."
        ),
    ] = None,
) -> None:
    """Write the planned tombstones to the log, or through the live cluster, unless their offsets have changed.

    A tombstone whose offset was committed again after its evaluation is refused, and recorded as refused. The next
    ingest and compact update the tables.

    With --only, the other planned tombstones remain planned. `offsetlake reject` withdraws planned tombstones.
    """
    if only is None:
        _run_jobs(context, ("emit",), context.log)
        return
    selected = read_selection(only)
    with Progress() as progress:
        finished = runner.run_emit(context.settings.lake, context.log, progress.say, selected)
    write_results(context, [finished])


@command(
    JOBS,
    JOB_FORMAT | LAKE,
    "offsetlake maintain",
    "offsetlake maintain --lake example/lake --log example/log --dry-run",
    "offsetlake maintain --lake example/lake --log example/log",
)
def maintain(
    context: CommandContext,
    log: Annotated[
        str | None,
        typer.Option("--log", metavar="DIR", help="The log to cut. Settings never select it, only this option does."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")] = False,
) -> None:
    """Delete log segments that the lake no longer needs, compact small files, and vacuum unreferenced ones.

    Also drop history and audit events that are older than the settings `keep` of `history` and `audit_events`, and
    compare the commits that an older version ingested, once, so that audits need not compare them.
    """
    if dry_run and context.options["format"] is not None:
        raise BadRequest("--format cannot be combined with --dry-run, which prints text for people.")
    settings, folder = context.settings, None if log is None else Path(log)
    if dry_run:
        lake = open_verified(settings.lake)
        print_preview(preview(lake, folder, settings.vacuum_retention, settings.keep), folder)
        return
    with Progress() as progress:
        job = runner.run_maintain(settings.lake, folder, settings.vacuum_retention, settings.keep, progress.say)
    write_results(context, [job])


def _expiry(context: CommandContext, now: str | None, retention: str | None, compacted_by: int | None = None) -> Expiry:
    return Expiry(_policy(context, retention), _time(context, now), compacted_by)


def _policy(context: CommandContext, retention: str | None) -> RetentionPolicy:
    """Return the configured policy; `retention`, if not None, replaces its default."""
    policy = context.settings.retention
    return policy if retention is None else replace(policy, default_ms=kept_ms(retention, minutes=True))


def _time(context: CommandContext, now: str | None) -> int:
    return context.now if now is None else context.instant("--now", now)


def _run_jobs(
    context: CommandContext,
    jobs: Collection[str],
    log: LogAddress | None = None,
    expiry: Expiry | None = None,
    through_run: int | None = None,
) -> None:
    lake, spark = context.settings.lake, context.settings.spark
    with Progress() as progress:
        finished = runner.run_jobs(lake, log, jobs, expiry, progress.say, through_run, progress.advance, spark)
    write_results(context, finished)


def write_results(context: CommandContext, jobs: list[FinishedJob]) -> None:
    """Write the results of jobs in the selected format."""
    lake = Lake.open(context.settings.lake)
    if context.settings.format != "table":
        write(job_summary.as_rows(lake, jobs), context.settings.format)
        return
    with writing_to(sys.stdout):
        job_summary.print_summary(lake, jobs, context.flags("fleet", "cluster", "lake", "config"))
