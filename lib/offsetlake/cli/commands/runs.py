"""`offsetlake runs`: the runs of all jobs and their results."""

import pyarrow as pa

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.each_lake import each_lake
from offsetlake.cli.commands.options import FLEET, LAKE, QUESTIONS, ROWS, command
from offsetlake.queries.run_changes import list_runs
from offsetlake.util.times import about, to_duration

MAX_TENTHS_MS = 120_000  # longer durations are written without tenths of a second

# The columns of a table for people, each with its importance (`offsetlake.cli.tables.Column`).
_SHOWN = {
    "run_id": 1, "job": 1, "outcome": 1, "started_at": 1, "duration": 2, "records_read": 2, "rows_written": 3,
    "log": 4, "result": 3,
}  # fmt: skip


@command(QUESTIONS, ROWS | LAKE | FLEET, "offsetlake runs", "offsetlake runs --limit 5 --format json")
@each_lake()
def runs(context: CommandContext) -> None:
    """List the runs of all jobs, newest first, with start, duration, records read, rows written and result."""
    rows = list_runs(context.open_lake())
    if context.settings.format == "table":
        durations = [None if ms is None else _duration(ms) for ms in rows["duration_ms"].to_pylist()]
        counts = rows["counts"].to_pylist(maps_as_pydicts="strict")
        rows = rows.append_column("duration", pa.array(durations, pa.string()))
        rows = rows.append_column("result", pa.array(map(_result, counts), pa.string()))
    context.write(rows, _SHOWN)


def _duration(ms: int) -> str:
    return f"{ms / 1000:.1f}s" if ms < MAX_TENTHS_MS else to_duration(about(ms))


def _result(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
