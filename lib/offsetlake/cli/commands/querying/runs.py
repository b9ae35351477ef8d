"""`offsetlake runs`: the runs of all jobs and their results, by itself or by cycle."""

from typing import Annotated

import pyarrow as pa
import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.each_lake import each_lake
from offsetlake.cli.commands.options import FLEET, LAKE, QUESTIONS, ROWS, command
from offsetlake.queries.cycles import as_texts, duration_text, list_cycles

# The columns of tables for people, each with its importance (`offsetlake.cli.tables.Column`).
_SHOWN = {
    "run_id": 1, "job": 1, "outcome": 1, "started_at": 1, "duration": 2, "records_read": 2, "rows_written": 3,
    "log": 4, "result": 3,
}  # fmt: skip
_CYCLES_SHOWN = {
    "cycle": 1, "outcome": 1, "started_at": 1, "duration": 2, "jobs": 4, "records_read": 2, "rows_written": 3,
    "failed": 1,
}  # fmt: skip


@command(
    QUESTIONS,
    ROWS | LAKE | FLEET,
    "offsetlake runs",
    "offsetlake runs --limit 5 --format json",
    "offsetlake runs --cycles --fleet conf/lakes.toml",
)
@each_lake()
def runs(
    context: CommandContext,
    cycles: Annotated[
        bool, typer.Option("--cycles", help="Show a row for each cycle, with what failed, instead of each run.")
    ] = False,
) -> None:
    """List the runs of all jobs, newest first, with start, duration, records read, rows written and result."""
    rows = list_cycles(context.open_lake()) if cycles else context.questions.runs()
    if context.format == "table":
        rows = as_texts(rows) if cycles else _as_texts(rows)
    context.write(rows, _CYCLES_SHOWN if cycles else _SHOWN)


def _as_texts(rows: pa.Table) -> pa.Table:
    durations = pa.array(map(duration_text, rows["duration_ms"].to_pylist()), pa.string())
    rows = rows.append_column("duration", durations)
    counts = rows["counts"].to_pylist(maps_as_pydicts="strict")
    return rows.append_column("result", pa.array(map(_result, counts), pa.string()))


def _result(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
