"""Prints what `offsetlake maintain --dry-run` found."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from offsetlake.cli.output import write, write_line
from offsetlake.lake.plans import MaintainPlan
from offsetlake.pipeline.maintain.job import Preview
from offsetlake.util.amounts import counted
from offsetlake.util.times import to_iso


def print_preview(preview: Preview, log: Path | None) -> None:
    """Write to standard output what `maintain` would delete and compact; `log` is the folder of the log to cut."""
    if log is None:
        write_line("The log would not be changed: select a log to cut with --log.")
    else:
        _print_cuts(preview, log)
    for line in _dropped_lines(preview.dropped):
        write_line(line)
    if preview.without_steps:
        write_line(
            f"{counted(preview.without_steps, 'commit')} that an older version ingested would be compared for "
            "the audits."
        )
    write_line(
        f"{counted(sum(preview.compacted.values()), 'small file')} of the tables would be compacted, and "
        f"{counted(sum(preview.removed.values()), 'unreferenced file')} vacuumed:"
    )
    for table, small in preview.compacted.items():
        if small or preview.removed[table]:
            write_line(f"{small:>14,} to compact, {preview.removed[table]:,} to vacuum: {table}")
    write_line("Nothing was changed: run the command without --dry-run to do it.")


def _dropped_lines(dropped: MaintainPlan) -> Iterator[str]:
    if dropped.history_through:
        instant = dropped.history_begins
        begins = "" if instant is None else f", and history would begin at {to_iso(instant)}"
        yield f"The history of ingest runs up to {dropped.history_through} would be dropped{begins}."
    if dropped.audit_events_begins:
        yield f"Audit events before {to_iso(dropped.audit_events_begins)} would be dropped."


def segments_text(count: int, size: int) -> str:
    """Return a number of segments and their size in bytes as text."""
    megabytes = f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{counted(size, 'byte')}"
    return f"{counted(count, 'segment')} ({megabytes})"


def _print_cuts(preview: Preview, log: Path) -> None:
    segments = sum(len(partition.cut.obsolete) for partition in preview.cuts)
    size = sum(partition.cut.size for partition in preview.cuts)
    write_line(f"{segments_text(segments, size) if segments else 'No segment'} of the log {log} would be deleted.")
    rows = [
        {
            "log_partition": str(partition.cut.log_partition),
            "needed_position": partition.need.position,
            "segments_deleted": len(partition.cut.obsolete),
            "bytes_deleted": partition.cut.size,
            "segments_kept": partition.held,
            "kept_for": partition.need.held_by if partition.held else None,
        }
        for partition in preview.cuts
        if partition.cut.obsolete or partition.held
    ]
    if rows:
        write(pa.Table.from_pylist(rows), "table")
    if len(preview.cuts) > len(rows):
        write_line(
            f"{counted(len(preview.cuts) - len(rows), 'log partition has', 'log partitions have')} only an "
            "active segment, which is never deleted."
        )
