"""Summarizes what jobs did: as text for people, and as rows for programs."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from rich.console import Console
from rich.text import Text

from offsetlake.cli.maintain_preview import segments_text
from offsetlake.cli.next_commands import next_commands
from offsetlake.cli.output import write
from offsetlake.lake import runs
from offsetlake.lake.files import table_schema
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.runner import FinishedJob
from offsetlake.queries.in_doubt import what_is_unknown
from offsetlake.queries.run_changes import RunChanges, changes
from offsetlake.rules.retention import EXPIRING, RULES, Rule
from offsetlake.util.amounts import counted, noun
from offsetlake.util.command_lines import command_line
from offsetlake.util.escaping import visible

MAX_LISTED_GROUPS = 10
MIN_RATED_RECORDS = 1000  # a rate of fewer records is not meaningful

_Noun = tuple[str, str | None]
"""The arguments of `noun` after the number."""

_KINDS: Mapping[str, _Noun] = {
    "transaction_markers": ("transaction marker", None),
    "group_records": ("group record", None),
    "share_state_records": ("share-partition state", None),
    "quarantine": ("undecodable record, kept in quarantine", "undecodable records, kept in quarantine"),
    "audit_events": ("audit event", None),
}
_CHANGED_SHOWN = {
    "group_id": 1, "commits": 1, "tombstones": 2, "changed_offsets": 2, "offsets": 3, "last_timestamp": 3,
}  # fmt: skip
_COMPACTED: Mapping[str, _Noun] = {
    "offsets": ("offset", None),
    "pending_offsets": ("pending", "pending"),
    "groups": ("group", None),
    "group_members": ("member", None),
    "share_partitions": ("share partition", None),
    "unresolved_records": ("unresolved record", None),
}
_SELDOM = ("share_partitions", "unresolved_records")  # tables that most lakes have no rows in
_NO_GROUPS = "The lake has no group now: those with records in history were deleted, or expired."
_NO_RECORDS = "The lake has no group: no commit and no group record was decoded."
_QUARANTINED = Rule.QUARANTINED.name.lower()
_OF_GROUPS = ("nothing_left", "share_idle")  # rules that delete groups


def print_summary(lake: Lake, jobs: Sequence[FinishedJob], flags: Sequence[str]) -> None:
    """Write to standard output what the jobs did; `flags` are the options that select the lake."""
    console = Console(highlight=False, soft_wrap=True)
    for job in jobs:
        for line in _LINES[job.row.job](lake, job, flags):
            _print(console, line)
        for note in job.row.notes:
            _print(console, f"NOTE  {note}", "bold yellow")
    undecodable = lake.query("SELECT count(*) AS n FROM quarantine", "quarantine")["n"][0].as_py()
    if undecodable:
        command = command_line("sql", *flags, "SELECT log_topic, log_partition, log_offset, reason FROM quarantine")
        _print(console, f"NOTE  {counted(undecodable, 'record')} could not be decoded: {command}", "bold yellow")
    if note := what_is_unknown(lake):
        _print(console, f"NOTE  {note}", "bold yellow")
    ingested = [job.row.run_id for job in jobs if job.row.job == "ingest" and job.row.outcome == "done"]
    changed = changes(lake, ingested, MAX_LISTED_GROUPS) if ingested else None
    if changed and changed.groups:
        _print_changed_groups(console, changed, ingested, flags)
    _print(console, f"The Delta tables are in {lake.location}")
    console.print(Text("Commands to try next:"))
    for command in next_commands(lake, changed, flags):
        _print(console, f"  {command}")


def as_rows(lake: Lake, jobs: Sequence[FinishedJob]) -> pa.Table:
    """Return the rows of `runs` of the jobs, with the positions and versions that a caller needs to continue.

    | Column    | Type                | Description |
    |-----------|---------------------|-------------|
    | positions | as in `runs`        | Of a compaction: the log positions that the compacted tables include. |
    | versions  | map<string, bigint> | The Delta version of each table after the run. |
    """
    schema = table_schema("runs").append(pa.field("versions", pa.map_(pa.string(), pa.int64())))
    rows = [job.row.to_row() | {"versions": list(job.row.versions.items())} for job in jobs]
    for row in rows:
        if row["job"] == "compact":
            row["positions"] = [position._asdict() for position in runs.positions_after(lake, row["through_run"])]
    return pa.Table.from_pylist(rows, schema=schema)


def _print(console: Console, line: str, style: str = "") -> None:
    """Print a line, with control characters of names and paths escaped."""
    console.print(Text(visible(line), style))


def _ingest_lines(lake: Lake, job: FinishedJob, _flags: Sequence[str]) -> Iterator[str]:
    row = job.row
    if row.outcome == "nothing new":
        yield f"Nothing new: the lake already contains all records of {row.log}"
        return
    counts = row.counts
    records = sum(counts.values()) - counts.get("audit_events", 0)  # audit events are in headers of records
    yield (
        f"Read {counted(records, 'record')} of {counted(len(row.ranges or ()), 'log partition')} of {row.log} "
        f"in {job.seconds:.1f} s"
        f"{_rate(records, job)}"
    )
    commit_kinds = lake.query(
        f"SELECT kind, count(*) AS n FROM offset_commits WHERE ingest_run = {row.run_id} GROUP BY kind",  # noqa: S608
        "offset_commits",
    )
    by_kind: dict[_Noun, int] = {(kind["kind"], None): kind["n"] for kind in commit_kinds.to_pylist()}
    by_kind |= {name: counts.get(table, 0) for table, name in _KINDS.items()}
    yield from _count_lines(by_kind)


def _compact_lines(lake: Lake, job: FinishedJob, _flags: Sequence[str]) -> Iterator[str]:
    if job.row.outcome == "nothing new":
        yield "Nothing to compact: the tables are up to date"
        return
    previous_run = runs.last_run(lake, "compact", through=job.row.run_id - 1)
    previous, counts = previous_run.counts if previous_run else {}, job.row.counts
    totals = ", ".join(
        f"{counted(counts.get(table, 0), *name)} ({counts.get(table, 0) - previous.get(table, 0):+,})"
        for table, name in _COMPACTED.items()
        if table not in _SELDOM or counts.get(table) or previous.get(table)
    )
    yield f"Compacted in {job.seconds:.1f} s; the lake now contains {totals}"
    if not counts["groups"]:
        yield _NO_GROUPS if lake.count("offset_commits") or lake.count("group_records") else _NO_RECORDS


def _expire_lines(_lake: Lake, job: FinishedJob, flags: Sequence[str]) -> Iterator[str]:
    counts = job.row.counts
    expired = sum(counts.get(rule, 0) for rule, expires in zip(RULES, EXPIRING, strict=True) if expires)
    evaluated = sum(counts.get(rule, 0) for rule in RULES)
    if counts["withdrawn"]:
        yield (
            f"Withdrew {counted(counts['withdrawn'], 'planned tombstone')}: retention now keeps these offsets "
            "and groups"
        )
    if counts["gone"]:
        yield f"Dropped {counted(counts['gone'], 'planned tombstone')}: these offsets and groups no longer exist"
    deleted = sum(counts.get(rule, 0) for rule in _OF_GROUPS)
    if not expired and not deleted:
        yield f"Evaluated {counted(evaluated, 'offset')}: none expires"
        yield from _count_lines({(_QUARANTINED, _QUARANTINED): counts.get(_QUARANTINED, 0)})
        return
    yield (
        f"Evaluated {counted(evaluated, 'offset')}: {expired:,} {noun(expired, 'expires', 'expire')}, and "
        f"{counted(deleted, 'group is', 'groups are')} deleted; "
        f"planned {counted(counts['planned'], 'tombstone')}, which `offsetlake emit` writes"
    )
    yield from _count_lines({(rule, rule): counts.get(rule, 0) for rule in (*RULES, *_OF_GROUPS)})
    yield f"To see what expires and why: {command_line('tombstones', *flags, '--outcome', 'planned')}"


def _emit_lines(_lake: Lake, job: FinishedJob, flags: Sequence[str]) -> Iterator[str]:
    counts = job.row.counts
    if job.row.outcome == "nothing new":
        yield "Nothing to emit: no tombstone or alteration is planned"
        return
    written = sum(counts.get(name, 0) for name in ("emitted", "done"))
    yield (f"Wrote {counted(written, 'planned record')} to {job.row.log} in {job.seconds:.1f} s{_rate(written, job)}")
    if counts.get("gone"):
        yield f"{counts['gone']:>14,} not needed: these offsets and groups no longer exist"
    if counts.get("refused"):
        yield f"{counts['refused']:>14,} refused: {command_line('tombstones', *flags, '--outcome', 'refused')}"
    yield "The next ingest and compact update the tables"


def _maintain_lines(_lake: Lake, job: FinishedJob, _flags: Sequence[str]) -> Iterator[str]:
    counts = job.row.counts
    if job.row.log is None:
        yield "The log was not changed: select a log to cut with --log"
    elif counts["segments_deleted"]:
        deleted = segments_text(counts["segments_deleted"], counts["bytes_deleted"])
        yield f"Deleted {deleted} of the log {job.row.log}"
    else:
        yield f"Deleted no segment of the log {job.row.log}"
    dropped = {
        "history_rows_dropped": ("row of history", "rows of history"),
        "audit_events_dropped": ("audit event", None),
    }
    for name, rows in dropped.items():
        if counts[name]:
            is_old = noun(counts[name], "that is", "that are")
            yield f"Dropped {counted(counts[name], *rows)} {is_old} older than the settings allow"
    if counts["steps_computed"]:
        yield (
            f"Compared {counted(counts['steps_computed'], 'commit')} that an older version ingested, which "
            "makes audits faster"
        )
    yield (
        f"Compacted {counted(counts['files_compacted'], 'small file')} of the tables and vacuumed "
        f"{counted(counts['files_removed'], 'unreferenced file')} in {job.seconds:.1f} s"
    )


def _rebuild_lines(_lake: Lake, job: FinishedJob, _flags: Sequence[str]) -> Iterator[str]:
    counts = ", ".join(counted(count, *_COMPACTED[table]) for table, count in job.row.counts.items())
    yield f"Rebuilt from history in {job.seconds:.1f} s: {counts or 'no state table'}"


def _forget_lines(_lake: Lake, job: FinishedJob, _flags: Sequence[str]) -> Iterator[str]:
    rows = job.row.counts["audit_events"]
    yield f"Replaced the principal in {counted(rows, 'audit event')}" if rows else "No audit event names the principal"


_LINES: dict[str, Callable[[Lake, FinishedJob, Sequence[str]], Iterator[str]]] = {
    "ingest": _ingest_lines,
    "compact": _compact_lines,
    "expire": _expire_lines,
    "emit": _emit_lines,
    "maintain": _maintain_lines,
    "rebuild": _rebuild_lines,
    "forget": _forget_lines,
}


def _rate(records: int, job: FinishedJob) -> str:
    return f" ({records / job.seconds:,.0f} per second)" if records >= MIN_RATED_RECORDS else ""


def _count_lines(counts: Mapping[_Noun, int]) -> Iterator[str]:
    for name, count in counts.items():
        if count:
            yield f"{count:>14,} {noun(count, *name)}"


def _print_changed_groups(console: Console, changed: RunChanges, ingested: Sequence[int], flags: Sequence[str]) -> None:
    """Print the groups with the most commits in the log records that the runs read."""
    listed = changed.most.num_rows
    which = f"the {listed} with the most commits" if listed < changed.groups else "all of them"
    console.print(Text(f"\nThis run changed {counted(changed.groups, 'group')}; {which}:"))
    write(changed.most, "table", _CHANGED_SHOWN)
    if listed < changed.groups:
        numbers = ", ".join(map(str, ingested))
        of_run = (
            f"SELECT group_id, count(*) AS records FROM offset_commits WHERE ingest_run IN ({numbers}) "  # noqa: S608
            "GROUP BY group_id ORDER BY records DESC"
        )
        _print(console, f"and {changed.groups - listed:,} more: {command_line('sql', *flags, of_run)}")
    console.print()
