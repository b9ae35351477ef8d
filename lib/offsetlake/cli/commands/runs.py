"""`offsetlake runs`: which jobs ran when, and what came of them."""

import pyarrow as pa

from offsetlake.cli.commands.options import (
    QUESTIONS,
    ConfigOption,
    FormatOption,
    LakeOption,
    LimitOption,
    app,
    examples,
    opened,
)
from offsetlake.cli.output import write
from offsetlake.queries.run_changes import list_runs
from offsetlake.util.times import about, to_duration

TENTHS_BELOW_MS = 120_000

# As in `cli/commands/questions.py`.
_SHOWN = {
    "run_id": 1, "job": 1, "outcome": 1, "started_at": 1, "duration": 2, "records_read": 2, "rows_written": 3,
    "log": 4, "result": 3,
}  # fmt: skip


@app.command(rich_help_panel=QUESTIONS, epilog=examples("offsetlake runs", "offsetlake runs --limit 5 --format json"))
def runs(
    limit: LimitOption = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """List the runs of jobs, newest first: start, duration, how much it read and wrote, and its result."""
    settings, at = opened(lake, config_file, format_)
    answer = list_runs(at)
    if settings.format == "table":
        durations = [None if ms is None else _duration(ms) for ms in answer["duration_ms"].to_pylist()]
        counts = answer["counts"].to_pylist(maps_as_pydicts="strict")
        answer = answer.append_column("duration", pa.array(durations, pa.string()))
        answer = answer.append_column("result", pa.array(map(_result, counts), pa.string()))
    write(answer, settings.format, _SHOWN, limit)


def _duration(ms: int) -> str:
    return f"{ms / 1000:.1f}s" if ms < TENTHS_BELOW_MS else to_duration(about(ms))


def _result(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
