"""Shows the plan of a change of offsets or, with `--execute`, executes it and shows the outcome."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.output import write, write_exact, write_note
from offsetlake.cli.progress import Progress
from offsetlake.errors import Refused
from offsetlake.lake.foreign.guard import open_verified
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline import runner
from offsetlake.pipeline.changes import execute as changes
from offsetlake.pipeline.changes.live import LIMIT
from offsetlake.pipeline.runner import Plan
from offsetlake.rules.offsets_csv import write_offsets
from offsetlake.util.amounts import counted, noun
from offsetlake.util.command_lines import command_line, with_options

# The columns of a plan for people by their headings, each with its importance (`offsetlake.cli.tables.Column`).
TOMBSTONES_SHOWN = {
    "group_id": 1, "topic": 1, "partition": 1, "current_offset": 2, "group_type": 4, "state": 3, "outcome": 1,
    "reason": 1,
}  # fmt: skip
ALTERATIONS_SHOWN = {
    "group_id": 1, "topic": 1, "partition": 1, "current_offset": 1, "requested_offset": 2, "new_offset": 1,
    "difference": 3, "outcome": 1, "reason": 1,
}  # fmt: skip

_SOURCE = ("lake", "log", "bootstrap", "kafka_config", "config")


def change_offsets(
    context: CommandContext, job: str, table: str, plan: Plan, shown: Mapping[str, int], *, execute: bool
) -> None:
    """Show a plan or, with `execute`, execute it and show the outcome of each row.

    The plan is made from tables that are up to date with the log: those of the lake with `execute`, otherwise those of
    a temporary copy, so that nothing is written to the lake.

    Args:
        context: The context of the command.
        job: The job that the run is recorded as.
        table: The table in which the plan is stored: `tombstones` or `alterations`.
        plan: Makes the plan.
        shown: The columns of the plan for people with their importance.
        execute: Whether to execute the plan.

    Raises:
        Refused: A row was refused or, if nothing is planned, cannot be executed.

    """
    run_id = 0
    with _opened(context) as (lake, log, say):
        if execute:
            rows, run = runner.execute_change(lake, log, job, table, plan, say)
            run_id = run.run_id
        else:
            rows = runner.plan_change(lake, log, plan, say)
        live = ["--live"] if LIMIT in rows.column_names else []
        undo = [*context.flags("fleet", "cluster"), "restore", "--run", str(run_id), *live, *context.flags(*_SOURCE)]
        show_outcomes(context, rows, shown, undo, _named(log), execute=execute)


def show_outcomes(
    context: CommandContext,
    rows: pa.Table,
    shown: Mapping[str, int],
    undo: Sequence[str],
    changed_system: str,
    *,
    execute: bool,
) -> None:
    """Show the outcome of each row of a plan, or of its execution, and the command that executes or undoes it.

    Args:
        context: The context of the command.
        rows: The rows, with the columns `outcome`, `reason` and `committed_offset`.
        shown: The columns for people with their importance.
        undo: The words after `offsetlake` of the command that undoes what was executed.
        changed_system: What the plan changes, such as a cluster with its address.
        execute: Whether the plan was executed.

    Raises:
        Refused: A row was refused or, if nothing is planned, cannot be executed.
    """
    refused = changes.count_of(rows, "refused")
    changed = rows.num_rows - refused - changes.count_of(rows, "unchanged")
    answer = _with_difference(rows)
    style = context.settings.format
    write(_with_headings(answer) if style == "table" else answer, style, shown)
    if LIMIT in rows.column_names:
        _note_members(rows)
    if not changed and not refused:
        write_note("Nothing to change.")
    elif changed and execute:
        write_note(f"{counted(changed, 'change was', 'changes were')} made. To undo them: {command_line(*undo)}")
    elif changed:
        impossible = f", {refused:,} cannot be made" if refused else ""
        write_note(f"The plan is for {changed_system}.")
        again = command_line(*with_options(context.absolute_arguments, "--execute"))
        write_note(
            f"{counted(changed, 'change is', 'changes are')} planned{impossible}; nothing was changed. To "
            f"execute them: {again}"
        )
    if refused and (execute or not changed):
        problem = f"{noun(refused, 'was', 'were')} refused" if execute else "cannot be made"
        raise Refused(f"{refused:,} of {counted(rows.num_rows, 'change')} {problem}: see the column reason.")


def _named(log: LogAddress) -> str:
    """Return a log in words, with its address."""
    return f"the log in {log}" if log.connection is None else f"the cluster at {log.connection.bootstrap}"


def _note_members(rows: pa.Table) -> None:
    """Show how long members can delay the change of their offsets."""
    seconds = dict(zip(rows["group_id"].to_pylist(), rows[LIMIT].to_pylist(), strict=True))
    limits = {name: limit for name, limit in sorted(seconds.items()) if limit is not None}
    if not limits:
        write_note("--live changes nothing: the groups have no members, or `offsetlake serve` does not serve the log.")
    for name, limit in limits.items():
        write_note(
            f"Members of group {name} that do not give up partitions are removed within {counted(limit, 'second')}."
        )


def export_plan(context: CommandContext, plan: Plan, *, with_group: bool) -> None:
    """Print the offsets of a plan as the CSV that `kafka-consumer-groups --export` writes."""
    with _opened(context) as (lake, log, say), runner.up_to_date_copy(lake, log, say) as copy:
        rows = plan(copy)
    rows = rows.rename_columns(["new_offset" if name == "committed_offset" else name for name in rows.column_names])
    write_exact(write_offsets(rows, with_group=with_group).decode())


@contextmanager
def _opened(context: CommandContext) -> Iterator[tuple[Lake, LogAddress, Callable[[str], None]]]:
    """Yield the lake, the log, and a function that shows the current step."""
    log, lake = context.log, open_verified(context.settings.lake)
    context.note_unread(lake)
    with Progress() as progress:
        yield lake, log, progress.say


def _with_difference(rows: pa.Table) -> pa.Table:
    """Add the difference of the offsets, and show a note in the column of the reason."""
    if "note" not in rows.column_names:
        return rows
    offsets = (rows[name].cast(pa.decimal128(20)) for name in ("committed_offset", "previous_offset"))
    reason = pc.coalesce(rows["reason"], rows["note"])
    rows = rows.set_column(rows.column_names.index("reason"), "reason", reason).drop_columns(["note"])
    return rows.append_column("difference", pc.subtract(*offsets))


def _with_headings(rows: pa.Table) -> pa.Table:
    """Rename the offsets to current_offset and new_offset: the tables name them as they are after the change."""
    current = "previous_offset" if "previous_offset" in rows.column_names else "committed_offset"
    headings = {"committed_offset": "new_offset", current: "current_offset"}
    return rows.rename_columns([headings.get(name, name) for name in rows.column_names])
