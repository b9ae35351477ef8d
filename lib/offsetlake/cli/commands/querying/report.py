"""`offsetlake report`: writes an HTML page with charts about a lake, or one for each lake and an index."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.each_lake import LakeContext, asked, check_outcomes
from offsetlake.cli.commands.options import FLEET, LAKE, QUESTIONS, TIMES, GroupPatternOption, command
from offsetlake.cli.fleet.processes import ProcessOutcome
from offsetlake.cli.output import write_line
from offsetlake.cli.progress import Progress
from offsetlake.errors import BadRequest
from offsetlake.lake.sql.engine import limited_memory
from offsetlake.queries.cycles import list_cycles
from offsetlake.util.amounts import counted
from offsetlake.util.atomic_files import replacing
from offsetlake.util.times import to_iso

if TYPE_CHECKING:
    from offsetlake.web.report.report import Report

_INDEX, _SUMMARY = "index.html", "summary.json"


@command(
    QUESTIONS,
    LAKE | FLEET,
    "offsetlake report",
    "offsetlake report --group 'bulk-*' --since 2026-11-21T05:38 --to /var/www/bulk.html",
    "offsetlake report --fleet conf/lakes.toml --to /var/www/offsets",
)
def report(
    context: CommandContext,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="The file to write; with --fleet the folder. [dim]default: report.html, with --fleet reports[/]",
        ),
    ] = None,
    group: GroupPatternOption = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help=f"The start of charts over time: {TIMES}. [dim]default: a week before the newest record[/]",
        ),
    ] = None,
) -> None:
    """Write an HTML page with charts of commit rates, lag, expirations, top committers, the log and the tables.

    The page is self-contained and needs no network access. With several lakes of --fleet, a page for each and an index.
    """
    since_ms = None if since is None else context.instant("--since", since)
    if context.lakes is not None and len(context.lakes) > 1:
        _write_fleet(context, to or Path("reports"), group, since_ms)
        return
    file = to or Path("report.html")
    written = _write_lake(context, file, group, since_ms)
    write_line(f"Wrote {file} ({len(written.page.encode()) / 1000:,.0f} kB): open it in a browser")


def _write_lake(context: CommandContext, file: Path, group: str | None, since_ms: int | None) -> "Report":
    lake = context.open_lake()
    with Progress() as progress, limited_memory():
        from offsetlake.web.report.report import report as render  # noqa: PLC0415 - Jinja takes a tenth of a second to import

        rendered = render(lake, context.settings.retention, group, since_ms, progress.say)
        progress.say(f"writing {file}")
        _write(file, rendered.page)
    context.note_dropped(lake)
    return rendered


def _write_fleet(context: CommandContext, folder: Path, group: str | None, since_ms: int | None) -> None:
    """Write a report for each lake, and the index; raise FleetFailed if a lake failed."""
    from offsetlake.web.report.fleet_index import page_of  # noqa: PLC0415 - as above

    def write_one(one: LakeContext) -> None:
        rendered = _write_lake(one, folder / page_of(one.name), group, since_ms)
        summary = {"facts": {**rendered.facts}, "problems": [*rendered.problems], "newest_cycle": _cycle(one)}
        (one.folder / _SUMMARY).write_text(json.dumps(summary), encoding="utf-8")

    with asked(context, write_one, ("offsetlake.web.report.report", "offsetlake.web.report.pictures")) as outcomes:
        if any(outcome.failure is None for outcome in outcomes):
            _write_index(folder / _INDEX, outcomes)
        check_outcomes(outcomes)


def _write_index(file: Path, outcomes: Sequence[ProcessOutcome]) -> None:
    from offsetlake.web.report.fleet_index import Summary, fleet_index  # noqa: PLC0415 - as above

    summaries = {
        outcome.name: Summary(**json.loads((outcome.folder / _SUMMARY).read_text(encoding="utf-8")))
        for outcome in outcomes
        if outcome.failure is None
    }
    failed = {outcome.name: outcome.failure.message for outcome in outcomes if outcome.failure is not None}
    _write(file, fleet_index(summaries, failed))
    write_line(
        f"Wrote {file}, and a report for {len(summaries)} of {counted(len(outcomes), 'lake')}: open it in a browser"
    )


def _cycle(context: CommandContext) -> dict[str, str]:
    """Return when the newest cycle of the lake finished, or its outcome, and what failed in it."""
    cycle = next(iter(list_cycles(context.open_lake()).slice(0, 1).to_pylist()), None)
    if cycle is None:
        return {"newest cycle": "none", "failed in it": ""}
    finished = cycle["outcome"] if cycle["finished_at"] is None else to_iso(cycle["finished_at"])
    return {"newest cycle": finished, "failed in it": ". ".join(cycle["failed"])}


def _write(file: Path, page: str) -> None:
    """Replace the file atomically."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as temporary:
            temporary.write_text(page, encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"Cannot write the report to {file}: {error.strerror}.") from error
