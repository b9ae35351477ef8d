"""`offsetlake check`: what has to hold of the tables, asked as a gate of those who schedule the jobs."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pyarrow.compute as pc
import typer

from offsetlake.checks import gates
from offsetlake.checks.expectations import MAX_CHECKED_ROWS, NOTHING, evidence, first_run, pinned, read_suites
from offsetlake.cli.commands.options import JOBS, ConfigOption, FormatOption, LakeOption, app, examples, opened
from offsetlake.cli.output import Progress, tell, write
from offsetlake.errors import BadRequest, CheckFailed

# As in `cli/commands/questions.py`; the last text wraps.
_SHOWN = {"suite": 3, "table": 2, "version": 4, "success": 1, "observed": 3, "expectation": 1}


@app.command(
    rich_help_panel=JOBS,
    epilog=examples(
        "offsetlake check",
        "offsetlake check --suite after_compact --versions offsets=2,groups=2 --format json",
        "offsetlake check --full --docs /var/www/offsetlake",
        "offsetlake check --gate --suite after_compact",
        "offsetlake check --accept --suite after_compact",
    ),
)
def check(
    suite: Annotated[
        list[str] | None,
        typer.Option("--suite", metavar="NAME", help="Only this one; may be given again. [dim]default: all[/]"),
    ] = None,
    versions: Annotated[
        str | None,
        typer.Option(
            "--versions", metavar="TABLE=N,...", help="Delta versions to look at. [dim]default: those of now[/]"
        ),
    ] = None,
    docs: Annotated[
        Path | None, typer.Option("--docs", metavar="DIR", help="Also write HTML pages about it to this folder.")
    ] = None,
    gate: Annotated[
        bool,
        typer.Option("--gate", help="Ask also of what this gate did not let pass before; keep in mind what it finds."),
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Ask of all history, not only of what is new; as the daily audit does.")
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Check nothing: have gates let pass what was compacted until now.")
    ] = False,
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Check what has to hold of the tables; leaves with exit code 9 where it does not. It changes no table.

    A suite is a gate behind the job it is named for: after_compact, after_expire, after_emit. It asks about the history
    that the newest compaction took in and the state this can have changed; with --full about everything. With --gate
    what failed is asked about again by the next gate, and fails, until it is mended or somebody who has looked at it
    runs --accept.
    """
    settings, at = opened(lake, config_file, format_)
    suites = read_suites(suite or ())
    if gate and full:
        raise BadRequest("--gate asks about what is new, --full about everything: give one of them")
    if accept:
        if gate or full or versions or docs:
            raise BadRequest("--accept checks nothing: it takes --suite only")
        gates.accept(at, suites)
        tell(f"what was compacted until now passes: {', '.join(each.name for each in suites if each.new_since)}")
        return
    pins = pinned(at, suites, _versions(versions or ""))
    held_back = gates.held_back(at) if gate else {}
    found = {}
    with Progress() as progress:
        for each in suites:
            progress.say(f"looking for what breaks {each.name}")
            since = 0 if full else first_run(at, each, pins, held_back.get(each.name))
            found[each.name] = evidence(at, each, pins, since, None if full else MAX_CHECKED_ROWS, progress.advance)
        # Seconds of importing Great Expectations, and memory: only once the queries have given theirs back.
        from offsetlake.checks.runner import evaluate  # noqa: PLC0415

        answer = evaluate(suites, found, pins, docs, progress.say)
    write(answer, settings.format, _SHOWN)
    tell(f"looked at versions {','.join(f'{table}={version}' for table, version in pins.items())}")
    if empty := pc.sum(pc.equal(answer["observed"], NOTHING)).as_py():
        tell(f"{empty} of {answer.num_rows} had nothing to look at: their tables are empty")
    broken = answer.filter(pc.invert(answer["success"])).to_pylist()
    if gate:
        gates.settle(at, suites, pins, {row["suite"] for row in broken})
    if broken:
        raise CheckFailed(f"{len(broken)} of {answer.num_rows} do not hold. {'. '.join(map(_told, broken))}")


def _told(row: Mapping[str, Any]) -> str:
    return "{suite}: {expectation}; found in {table} at version {version}: {observed}".format_map(row)


def _versions(text: str) -> dict[str, int]:
    """Read `offsets=12,groups=7`; BadRequest where it is not like that."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if not re.fullmatch(r"\w+=[0-9]{1,18}", part):
            raise BadRequest(f"--versions: {part!r} is no table and version: write offsets=12,groups=7")
    named = [part.partition("=") for part in parts]
    if len({table for table, _, _ in named}) < len(named):
        raise BadRequest("--versions names a table twice")
    return {table: int(version) for table, _, version in named}
