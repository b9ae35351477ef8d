"""The commands that write: one job each, or all of them in order."""

import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from offsetlake.cli import config, job_summary
from offsetlake.cli.commands.options import (
    JOBS,
    BootstrapOption,
    ConfigOption,
    FormatOption,
    KafkaConfigOption,
    LakeOption,
    LimitOption,
    LogOption,
    NowOption,
    app,
    examples,
    log_of,
)
from offsetlake.cli.output import Progress, write, writing_to
from offsetlake.errors import BadRequest
from offsetlake.lake.foreign.guard import open_verified
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline import runner
from offsetlake.pipeline.expire.what_if import what_if as ask
from offsetlake.pipeline.maintain.job import preview
from offsetlake.pipeline.runner import Expiry, FinishedJob
from offsetlake.queries.questions import check_known, like
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.util.times import duration_ms, now_ms, to_duration, to_ms

RunFormatOption = Annotated[
    Literal["table", "json", "csv"] | None,
    typer.Option("--format", help="table for people; json (an object a line) and csv: the rows of runs, and versions."),
]
RetentionOption = Annotated[
    str | None,
    typer.Option("--retention", metavar="DURATION", help="In place of the configured default: 7d, 36h, 60s."),
]

# As in `cli/commands/questions.py`.
_WHAT_IF_SHOWN = {
    "group_id": 1, "group_type": 4, "state": 3, "offsets": 2, "now": 1, "in_24_hours": 1, "in_7_days": 2,
    "in_30_days": 3, "kept": 4, "next_expiry_timestamp": 2, "group_goes": 3,
}  # fmt: skip


@app.command(
    rich_help_panel=JOBS,
    epilog=examples(
        "offsetlake run",
        "offsetlake run --lake /lakes/copy --log /backup/kafka-data",
        "offsetlake run --lake /lakes/prod --bootstrap broker-1:9092",
    ),
)
def run(
    lake: LakeOption = None,
    log: LogOption = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    now: NowOption = None,
    retention: RetentionOption = None,
    emits: Annotated[
        bool, typer.Option("--emit", help="Also write what is planned: into the log, or through the live cluster.")
    ] = False,
    format_: RunFormatOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Read what is new in the log, bring the tables up to date, plan what is to go: ingest, compact, expire."""
    options = {"lake": lake, "log": log, "bootstrap": bootstrap, "kafka_config": kafka_config, "config": config_file}
    settings = config.load(options | {"format": format_}, os.environ)
    jobs = ("ingest", "compact", "expire", *(("emit",) if emits else ()))
    _jobs(settings, options, jobs, log_of(settings), _expiry(settings, now, retention))


@app.command(rich_help_panel=JOBS, epilog=examples("offsetlake ingest --lake /lakes/orders --log /backup/kafka-data"))
def ingest(
    lake: LakeOption = None,
    log: LogOption = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    format_: RunFormatOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Read what is new in the log into the history tables, each record once."""
    options = {"lake": lake, "log": log, "bootstrap": bootstrap, "kafka_config": kafka_config, "config": config_file}
    settings = config.load(options | {"format": format_}, os.environ)
    _jobs(settings, options, ("ingest",), log_of(settings))


@app.command(rich_help_panel=JOBS, epilog=examples("offsetlake compact --lake /lakes/orders"))
def compact(
    through_run: Annotated[
        int | None,
        typer.Option("--through-run", metavar="N", min=0, help="Only what was ingested by run N or before it."),
    ] = None,
    format_: RunFormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Bring offsets, pending offsets and groups up to what history holds."""
    options = {"lake": lake, "config": config_file}
    settings = config.load(options | {"format": format_}, os.environ)
    _jobs(settings, options, ("compact",), through_run=through_run)


@app.command(
    rich_help_panel=JOBS,
    epilog=examples(
        "offsetlake expire",
        "offsetlake expire --what-if --retention 3d",
        "offsetlake expire --what-if --now 2026-12-24 --format csv",
    ),
)
def expire(
    now: NowOption = None,
    retention: RetentionOption = None,
    what_if: Annotated[
        bool,
        typer.Option(
            "--what-if",
            help="Only show, by group, what would expire and when. With --retention 5m, the column now_with_5m too.",
        ),
    ] = False,
    group: Annotated[
        str | None, typer.Option("--group", metavar="PATTERN", help="With --what-if: only groups like this.")
    ] = None,
    compacted_by: Annotated[
        int | None,
        typer.Option("--compacted-by", metavar="N", min=0, help="Plan nothing where a run behind N has compacted."),
    ] = None,
    limit: LimitOption = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap", metavar="HOST:PORT", help="The cluster to ask which topics are deleted."),
    ] = None,
    kafka_config: KafkaConfigOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Judge every offset by the rules of retention; what is to go is planned in table tombstones, nothing goes yet."""
    options = {"lake": lake, "config": config_file, "format": format_}
    settings = config.load(options | {"bootstrap": bootstrap, "kafka_config": kafka_config}, os.environ)
    if not what_if:
        if (group, limit) != (None, None):
            option = "--limit" if group is None else "--group"
            raise BadRequest(f"{option} goes with --what-if; `offsetlake tombstones` shows what is planned")
        cluster = log_of(settings) if bootstrap else None
        _jobs(settings, options, ("expire",), cluster, _expiry(settings, now, retention, compacted_by))
        return
    if compacted_by is not None:
        raise BadRequest("--compacted-by does not go with --what-if, which plans nothing")

    other = None if retention is None else _policy(settings, retention)
    at = open_verified(settings.lake)
    answer = check_known(at, like(ask(at, settings.retention, other, _instant(now)), group), group)
    if other is None:
        write(answer.drop_columns(["other_now"]), settings.format, _WHAT_IF_SHOWN, limit)
    else:
        column = f"now_with_{to_duration(other.default_ms)}"
        answer = answer.rename_columns([column if name == "other_now" else name for name in answer.column_names])
        write(answer, settings.format, _WHAT_IF_SHOWN | {column: 1}, limit)


@app.command(
    rich_help_panel=JOBS,
    epilog=examples(
        "offsetlake emit --lake example/lake", "offsetlake emit --lake /lakes/prod --bootstrap broker-1:9092"
    ),
)
def emit(
    lake: LakeOption = None,
    log: LogOption = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    format_: RunFormatOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Write what is planned into the log, or do it through the live cluster: each only if what it judged still stands.

    A commit newer than the one judged is never deleted: such a decision is refused, and recorded so. The next ingest
    and compact bring the effect into the tables.
    """
    options = {"lake": lake, "log": log, "bootstrap": bootstrap, "kafka_config": kafka_config, "config": config_file}
    settings = config.load(options | {"format": format_}, os.environ)
    _jobs(settings, options, ("emit",), log_of(settings))


@app.command(
    rich_help_panel=JOBS,
    epilog=examples(
        "offsetlake maintain",
        "offsetlake maintain --lake example/lake --log example/log --dry-run",
        "offsetlake maintain --lake example/lake --log example/log",
    ),
)
def maintain(
    log: Annotated[
        str | None,
        typer.Option("--log", metavar="DIR", help="Cut this log. Only where named here, never by a setting."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")] = False,
    format_: RunFormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Delete the segments of a log that the lake alone needs no more, compact small files, remove files of no use."""
    if dry_run and format_ is not None:
        raise BadRequest("--format does not go with --dry-run, which is for people")
    options = {"lake": lake, "config": config_file}
    settings = config.load(options | {"format": format_}, os.environ)

    folder = None if log is None else Path(log)
    if dry_run:
        foretold = preview(open_verified(settings.lake), folder, settings.vacuum_retention_ms)
        with writing_to(sys.stdout):
            job_summary.foretell(foretold, folder)
        return
    with Progress() as progress:
        done = runner.run_maintain(settings.lake, folder, settings.vacuum_retention_ms, progress.say)
    summarize(settings, options, [done])


def _expiry(settings: config.Config, now: str | None, retention: str | None, compacted_by: int | None = None) -> Expiry:

    return Expiry(_policy(settings, retention), _instant(now), compacted_by)


def _policy(settings: config.Config, retention: str | None) -> RetentionPolicy:
    """Give the configured policy, its default replaced where a retention is named."""
    return settings.retention if retention is None else replace(settings.retention, default_ms=duration_ms(retention))


def _instant(now: str | None) -> int:
    return now_ms() if now is None else to_ms(now)


def _jobs(
    settings: config.Config,
    options: Mapping[str, str | None],
    jobs: Collection[str],
    log: LogAddress | None = None,
    expiry: Expiry | None = None,
    through_run: int | None = None,
) -> None:

    with Progress() as progress:
        done = runner.run_jobs(settings.lake, log, jobs, expiry, progress.say, through_run, progress.advance)
    summarize(settings, options, done)


def summarize(settings: config.Config, options: Mapping[str, str | None], done: list[FinishedJob]) -> None:
    """Write what jobs did, in the format asked for."""
    if settings.format != "table":
        write(job_summary.as_rows(Lake.open(settings.lake), done), settings.format)
        return
    flags = [word for name in ("lake", "config") if (value := options[name]) for word in (f"--{name}", value)]
    with writing_to(sys.stdout):
        job_summary.summarize(Lake.open(settings.lake), done, flags)
