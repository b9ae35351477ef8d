"""`offsetlake check`: checks the expectations of the tables, so that a schedule can stop if one is not met."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.each_lake import each_lake
from offsetlake.cli.commands.options import FLEET, FORMAT, JOBS, LAKE, command
from offsetlake.cli.output import write_note
from offsetlake.cli.progress import Progress
from offsetlake.errors import BadRequest, CheckFailed
from offsetlake.lake.data_files import refuse_damaged
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.checks import gates
from offsetlake.pipeline.checks.clocks import wrong_timestamps
from offsetlake.pipeline.checks.expectations import (
    MAX_CHECKED_ROWS,
    NOTHING,
    Suite,
    evidence,
    first_run,
    pinned,
    read_suites,
)
from offsetlake.util.amounts import counted
from offsetlake.util.extras import requires

# The columns of a table for people, each with its importance (`offsetlake.cli.tables.Column`); the last one wraps.
_SHOWN = {"suite": 3, "table": 2, "version": 4, "success": 1, "observed": 3, "expectation": 1}

_SuiteOption = Annotated[
    list[str] | None,
    typer.Option("--suite", metavar="NAME", help="Only this suite; can be repeated. [dim]default: all[/]"),
]
_VersionsOption = Annotated[
    str | None,
    typer.Option(
        "--versions", metavar="TABLE=N,...", help="The Delta versions to check. [dim]default: the current ones[/]"
    ),
]
_DocsOption = Annotated[
    Path | None,
    typer.Option(
        "--docs",
        metavar="DIR",
        help="Also write HTML pages with the results to this folder; with --fleet, to a folder for each lake in it.",
    ),
]
_GateOption = Annotated[
    bool,
    typer.Option("--gate", help="Also check what failed this gate before, and record what fails now."),
]
_FullOption = Annotated[
    bool, typer.Option("--full", help="Check the whole history instead of only new records, as a daily audit.")
]
_AcceptOption = Annotated[
    bool,
    typer.Option("--accept", help="Check nothing, and accept everything that is compacted so far."),
]


@command(
    JOBS,
    FORMAT | LAKE | FLEET,
    "offsetlake check",
    "offsetlake check --suite after_compact --versions offsets=2,groups=2 --format json",
    "offsetlake check --full --docs /var/www/offsetlake",
    "offsetlake check --gate --suite after_compact",
    "offsetlake check --accept --suite after_compact",
)
@requires("checks")
@each_lake("offsetlake.pipeline.checks.runner")
def check(
    context: CommandContext,
    suite: _SuiteOption = None,
    versions: _VersionsOption = None,
    docs: _DocsOption = None,
    gate: _GateOption = False,
    full: _FullOption = False,
    accept: _AcceptOption = False,
) -> None:
    """Check the expectations of the tables; exit with code 9 if one is not met. The tables do not change.

    A suite is a gate after the job that it is named for: after_compact, after_expire, after_emit. It checks the history
    that the newest compaction added and the state that depends on it; with --full, everything. With --gate, what failed
    is checked again by the next run of the gate, and fails again, until it is corrected or accepted with --accept.
    """
    lake = context.open_lake()
    suites = read_suites(suite or ())
    if gate and full:
        raise BadRequest("--gate checks new records and --full all records: use one of them.")
    if accept:
        if gate or full or versions or docs:
            raise BadRequest("--accept checks nothing: it can be combined with --suite only.")
        gates.accept(lake, suites)
        write_note(f"Accepted what is compacted so far: {', '.join(each.name for each in suites if each.new_since)}")
        return
    pins = pinned(lake, suites, _versions(versions or ""))
    docs = docs / context.cluster if docs and context.cluster else docs
    rows = _evaluated(lake, suites, pins, docs, gates.held_back(lake) if gate else {}, full=full)
    context.write(rows, _SHOWN)
    write_note(f"Checked versions {','.join(f'{table}={version}' for table, version in pins.items())}")
    if full:
        context.note_dropped(lake)
    context.note_unknown(lake)
    if note := _note_of_clocks(lake, suites, pins, full=full):
        write_note(note)
    empty = pc.sum(pc.equal(rows["observed"], NOTHING)).as_py()
    if empty and (not gate or empty == rows.num_rows):  # some tables of most lakes are empty, which no schedule repeats
        write_note(f"{empty} of {counted(rows.num_rows, 'expectation')} had no rows to check: their tables are empty")
    failed = rows.filter(pc.invert(rows["success"])).to_pylist()
    if gate:
        gates.settle(lake, suites, pins, {row["suite"] for row in failed})
    if failed:
        raise CheckFailed(
            f"{len(failed)} of {counted(rows.num_rows, 'expectation')} failed. {'. '.join(map(_message, failed))}"
        )


def _evaluated(
    lake: Lake,
    suites: Sequence[Suite],
    pins: Mapping[str, int],
    docs: Path | None,
    held_back: Mapping[str, int],
    *,
    full: bool,
) -> pa.Table:
    """Return a row for each expectation of the suites; `held_back` has the first run to check of suites that failed."""
    violations = {}
    with Progress() as progress:
        if full:
            progress.say("comparing the checksums of all data files")
            refuse_damaged(lake, lake.tables())
        for suite in suites:
            progress.say(f"checking {suite.name}")
            since = 0 if full else first_run(lake, suite, pins, held_back.get(suite.name))
            max_rows = None if full else MAX_CHECKED_ROWS
            violations[suite.name] = evidence(lake, suite, pins, since, max_rows, progress.advance)
        # Great Expectations takes seconds and memory to import: only after the queries have released theirs.
        from offsetlake.pipeline.checks.runner import evaluate  # noqa: PLC0415

        return evaluate(suites, violations, pins, docs, progress.say)


def _note_of_clocks(lake: Lake, suites: Sequence[Suite], pins: Mapping[str, int], *, full: bool) -> str:
    """Return the sentence about wrong timestamps in the history that the suites check; empty if they check none."""
    first_runs = [0 if full else first_run(lake, suite, pins) for suite in suites if suite.new_since]
    return wrong_timestamps(lake, pins, min(first_runs)) if first_runs else ""


def _message(row: Mapping[str, Any]) -> str:
    return "{suite}: {expectation}; in {table} at version {version}: {observed}".format_map(row)


def _versions(text: str) -> dict[str, int]:
    """Return the versions by table of `offsets=12,groups=7`; raise BadRequest for invalid text."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if not re.fullmatch(r"\w+=[0-9]{1,18}", part):
            raise BadRequest(f"Invalid --versions {part!r}: expected TABLE=VERSION pairs such as offsets=12,groups=7.")
    pairs = [part.partition("=") for part in parts]
    if len({table for table, _, _ in pairs}) < len(pairs):
        raise BadRequest("Invalid --versions: a table is named twice.")
    return {table: int(version) for table, _, version in pairs}
