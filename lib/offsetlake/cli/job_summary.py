"""What a person reads after a job: what was done, what to look at, what to ask next; and what a program reads."""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.text import Text

from offsetlake.cli.output import write
from offsetlake.lake import runs
from offsetlake.lake.files import table_schema
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.maintain.job import Preview
from offsetlake.pipeline.runner import FinishedJob
from offsetlake.queries.questions import quoted
from offsetlake.queries.run_changes import Changes, changes
from offsetlake.rules.retention import EXPIRING, RULES
from offsetlake.util.escaping import visible
from offsetlake.util.times import to_iso

LISTED_GROUPS = 10  # of those that a run changed
RATED = 1000  # records: reading fewer is over before a rate means anything

_KINDS = {
    "transaction_markers": "transaction markers",
    "group_records": "group records",
    "share_state_records": "share-partition states",
    "quarantine": "undecodable, kept in quarantine",
    "audit_events": "audit events: who did what",
}
_CHANGED_SHOWN = {
    "group_id": 1, "commits": 1, "tombstones": 2, "changed_offsets": 2, "offsets": 3, "last_timestamp": 3,
}  # fmt: skip
_COMPACTED = {"offsets": "offsets", "pending_offsets": "pending", "groups": "groups", "group_members": "members"}


def summarize(lake: Lake, done: list[FinishedJob], flags: list[str]) -> None:
    """Write to standard output what the jobs did; `flags` are the options a next command needs to find the lake."""
    console = Console(highlight=False, soft_wrap=True)
    for job in done:
        for line in _LINES[job.row.job](lake, job, flags):
            _print(console, line)
        for note in job.row.notes:
            _print(console, f"NOTE  {note}", "bold yellow")
    undecodable = lake.query("SELECT count(*) AS n FROM quarantine", "quarantine")["n"][0].as_py()
    if undecodable:
        command = _command("sql", flags, "SELECT log_topic, log_partition, log_offset, reason FROM quarantine")
        _print(console, f"NOTE  {undecodable:,} records could not be decoded: {command}", "bold yellow")
    ingested = [job.row.run_id for job in done if job.row.job == "ingest" and job.row.outcome == "done"]
    changed = changes(lake, ingested, LISTED_GROUPS) if ingested else None
    if changed and changed.groups:
        _changed_groups(console, changed, ingested, flags)
    _print(console, f"The tables are Delta tables in {lake.path}")
    console.print(Text("Ask next:"))
    for question in _next_questions(lake, changed, flags):
        _print(console, f"  {question}")


def _print(console: Console, line: str, style: str = "") -> None:
    """Print a line; names and paths in it do not control the terminal."""
    console.print(Text(visible(line), style))


def as_rows(lake: Lake, done: list[FinishedJob]) -> pa.Table:
    """Give what the jobs did as rows: the columns of `runs`, and what whoever goes on from here needs.

    | column    | is |
    |-----------|----|
    | positions | of a compaction: up to where in the log the compacted tables reach |
    | versions  | the Delta version of each table as the run left it |
    """
    schema = table_schema("runs").append(pa.field("versions", pa.map_(pa.string(), pa.int64())))
    rows = [job.row.to_row() | {"versions": list(job.row.versions.items())} for job in done]
    for row in rows:
        if row["job"] == "compact":
            row["positions"] = [of._asdict() for of in runs.positions_after(lake, row["through_run"])]
    return pa.Table.from_pylist(rows, schema=schema)


def _ingested(lake: Lake, job: FinishedJob, _flags: list[str]) -> Iterator[str]:
    row = job.row
    if row.outcome == "nothing new":
        yield f"Nothing new: the lake already holds all of {row.log}"
        return
    of_tables = row.counts
    records = sum(of_tables.values()) - of_tables.get("audit_events", 0)  # they are headers of records, not records
    rate = f": {records / job.seconds:,.0f} a second" if records >= RATED else ""
    yield (
        f"Read {records:,} records of {len(row.ranges or ())} log partitions of {row.log} in {job.seconds:.1f} s{rate}"
    )
    kinds = lake.query(
        f"SELECT kind, count(*) AS n FROM offset_commits WHERE ingest_run = {row.run_id} GROUP BY kind",  # noqa: S608
        "offset_commits",
    )
    by_kind = {f"{each['kind']}s": each["n"] for each in kinds.to_pylist()}
    by_kind |= {name: of_tables.get(table, 0) for table, name in _KINDS.items()}
    for kind, count in by_kind.items():
        if count:
            yield f"{count:>14,} {kind}"


def _compacted(lake: Lake, job: FinishedJob, _flags: list[str]) -> Iterator[str]:
    if job.row.outcome == "nothing new":
        yield "Nothing to compact: the tables are up to date"
        return
    previous = runs.last_run(lake, "compact", through=job.row.run_id - 1)
    before, of_tables = previous.counts if previous else {}, job.row.counts
    counts = ", ".join(
        f"{of_tables[table]:,} {name} ({of_tables[table] - before.get(table, 0):+,})"
        for table, name in _COMPACTED.items()
    )
    yield f"Compacted in {job.seconds:.1f} s; the lake now holds {counts}"
    if not of_tables["groups"]:
        yield "No group is left: in this log all groups end deleted or expired. History has their commits."


def _expired(lake: Lake, job: FinishedJob, flags: list[str]) -> Iterator[str]:
    counts = job.row.counts
    going = sum(counts.get(rule, 0) for rule, goes in zip(RULES, EXPIRING, strict=True) if goes)
    judged = sum(counts.get(rule, 0) for rule in RULES)
    if counts["withdrawn"]:
        yield f"{counts['withdrawn']:,} tombstones planned before are withdrawn: they are not to go any more"
    if counts["gone"]:
        yield f"{counts['gone']:,} tombstones planned before are not needed any more: what was to go is gone"
    if not going and not counts.get("nothing_left"):
        yield f"Judged {judged:,} offsets: none is to go"
        return
    yield (
        f"Judged {judged:,} offsets: {going:,} are to go, and {counts['nothing_left']:,} groups; "
        f"{counts['planned']:,} tombstones planned, which `offsetlake emit` sends"
    )
    for rule in (*RULES, "nothing_left"):
        if counts.get(rule):
            yield f"{counts[rule]:>14,} {rule}"
    yield f"What goes and why: {_command('tombstones', flags, '--outcome', 'planned')}"


def _emitted(_lake: Lake, job: FinishedJob, flags: list[str]) -> Iterator[str]:
    counts = job.row.counts
    if job.row.outcome == "nothing new":
        yield "Nothing to emit: nothing is planned"
        return
    went = sum(counts.get(name, 0) for name in ("emitted", "done"))
    rate = f": {went / job.seconds:,.0f} a second" if went >= RATED else ""
    yield f"Wrote {went:,} of what was planned to {job.row.log} in {job.seconds:.1f} s{rate}"
    if counts.get("gone"):
        yield f"{counts['gone']:>14,} were gone already"
    if counts.get("refused"):
        yield f"{counts['refused']:>14,} refused: {_command('tombstones', flags, '--outcome', 'refused')}"
    yield "The tables follow with the next ingest and compact"


def _maintained(_lake: Lake, job: FinishedJob, _flags: list[str]) -> Iterator[str]:
    counts = job.row.counts
    if job.row.log is None:
        yield "The log was not touched: --log names one to cut"
    elif counts["segments_deleted"]:
        yield f"Deleted {_segments(counts['segments_deleted'], counts['bytes_deleted'])} of the log {job.row.log}"
    else:
        yield f"Deleted nothing of the log {job.row.log}"
    yield (
        f"Compacted {counts['files_compacted']:,} small files of the tables and removed {counts['files_removed']:,} "
        f"of no use, in {job.seconds:.1f} s"
    )


def _rebuilt(_lake: Lake, job: FinishedJob, _flags: list[str]) -> Iterator[str]:
    counts = ", ".join(f"{count:,} {_COMPACTED[table]}" for table, count in job.row.counts.items())
    yield f"Rebuilt from history in {job.seconds:.1f} s: {counts or 'no table of latest state'}"


def foretell(found: Preview, log: Path | None) -> None:
    """Write to standard output what `maintain` would do; `log` is the folder it was asked to cut."""
    console = Console(highlight=False, soft_wrap=True)
    if log is None:
        console.print(Text("The log would not be touched: --log names one to cut"))
    else:
        segments, size = sum(len(c.cut.going) for c in found.cuts), sum(c.cut.size for c in found.cuts)
        going = f"{_segments(segments, size)} would go" if segments else "nothing would go"
        _print(console, f"Of the log {log} {going}")
    rows = [
        {
            "log_partition": str(each.cut.log_partition),
            "needed_position": each.need.position,
            "segments_going": len(each.cut.going),
            "bytes_going": each.cut.size,
            "segments_held": each.held,
            "held_by": each.need.held_by if each.held else None,
        }
        for each in found.cuts
        if each.cut.going or each.held
    ]
    if rows:
        write(pa.Table.from_pylist(rows), "table")
    if len(found.cuts) > len(rows):
        console.print(
            Text(f"{len(found.cuts) - len(rows):,} log partitions have their active segment only, which stays")
        )
    console.print(
        Text(
            f"Of the tables {sum(found.compacted.values()):,} small files would become fewer, and "
            f"{sum(found.removed.values()):,} of no use go"
        )
    )
    for table, small in found.compacted.items():
        if small or found.removed[table]:
            console.print(Text(f"{small:>14,} to compact, {found.removed[table]:,} to remove: {table}"))
    console.print(Text("Nothing was written: without --dry-run it is done"))


def _segments(count: int, size: int) -> str:
    return f"{count:,} segment{'' if count == 1 else 's'} ({_megabytes(size)})"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size:,} bytes"


_LINES: dict[str, Callable[[Lake, FinishedJob, list[str]], Iterator[str]]] = {
    "ingest": _ingested,
    "compact": _compacted,
    "expire": _expired,
    "emit": _emitted,
    "maintain": _maintained,
    "rebuild": _rebuilt,
}


def _changed_groups(console: Console, changed: Changes, ingested: list[int], flags: list[str]) -> None:
    """Print the groups with the most commits in the log records that this run read."""
    listed = changed.most.num_rows
    which = f"the {listed} with the most commits" if listed < changed.groups else "all of them"
    console.print(Text(f"\nChanged in this run: {changed.groups:,} groups; {which}:"))
    write(changed.most, "table", _CHANGED_SHOWN)
    if listed < changed.groups:
        numbers = ", ".join(map(str, ingested))
        of_run = (
            f"SELECT group_id, count(*) AS records FROM offset_commits WHERE ingest_run IN ({numbers}) "  # noqa: S608
            "GROUP BY group_id ORDER BY records DESC"
        )
        _print(console, f"and {changed.groups - listed:,} more: {_command('sql', flags, of_run)}")
    console.print()


def _next_questions(lake: Lake, changed: Changes | None, flags: list[str]) -> list[str]:
    """Three commands that have an answer in this lake."""
    key = _some_key(lake, changed)
    if key is None:
        by_type = "SELECT record_name, count(*) AS records FROM group_records GROUP BY record_name"
        return [_command("groups", flags), _command("sql", flags, by_type), _command("runs", flags)]
    group, topic, at = ("--group", key["group_id"]), ("--topic", key["topic"]), key["log_timestamp"]
    instant = () if at is None else ("--as-of", to_iso(at))
    busiest = (
        "SELECT group_id, count(*) AS commits FROM offset_commits GROUP BY group_id ORDER BY commits DESC LIMIT 10"
    )
    return [
        _command("history", flags, *group, *topic, "--partition", str(key["partition"])),
        _command("offsets", flags, *group, *instant),
        _command("sql", flags, busiest),
    ]


def _command(name: str, flags: list[str], *arguments: str) -> str:
    return shlex.join([_program(), name, *flags, *arguments])


def _program() -> str:
    """Name the program so that the line can be typed as it is: by its path where it is not on the shell's."""
    called = Path(sys.argv[0])
    if called.name != "offsetlake" or shutil.which("offsetlake"):
        return "offsetlake"
    return os.path.relpath(called)


def _some_key(lake: Lake, changed: Changes | None) -> dict[str, Any] | None:
    """Return a key that is in `offsets`, of the group that changed most if there is one, or was in it once."""
    groups = changed.most.filter(pc.greater(changed.most["offsets"], 0))["group_id"].to_pylist() if changed else []
    of_group = f"WHERE group_id = {quoted(groups[0])} ORDER BY topic, partition" if groups else ""
    columns = "group_id, topic, partition, log_timestamp"
    in_state = f"SELECT {columns} FROM offsets {of_group} LIMIT 1"  # noqa: S608
    in_history = f"SELECT {columns} FROM offset_commits WHERE kind = 'commit' AND producer_id IS NULL LIMIT 1"  # noqa: S608
    found = lake.query(in_state, "offsets").to_pylist() or lake.query(in_history, "offset_commits").to_pylist()
    return found[0] if found else None
