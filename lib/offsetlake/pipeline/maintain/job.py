"""`maintain`: deletes log segments and history that are no longer needed, and compacts and vacuums the tables.

It also compares the commits that an older version ingested, once.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from offsetlake.lake import current_run, plans, runs, upkeep
from offsetlake.lake.definitions import TABLES
from offsetlake.lake.foreign.guard import writing
from offsetlake.lake.lake import Lake
from offsetlake.lake.upkeep import VacuumRetention
from offsetlake.log.address import LogAddress
from offsetlake.log.disk.cutting import Cut, delete, plan_cut
from offsetlake.log.positions import OFFSETS_TOPIC
from offsetlake.log.readiness import repair_after_crash
from offsetlake.log.writer.ownership import owned, refuse_broker_folder
from offsetlake.log.writer.recovery import recover
from offsetlake.log.writer.served_log import served
from offsetlake.pipeline.maintain.history_retention import drop, plan_cuts
from offsetlake.pipeline.maintain.history_steps import commits_without_steps, compute_steps
from offsetlake.pipeline.maintain.log_retention import Need, needs_of_log
from offsetlake.pipeline.maintain.merging import merge, mergeable
from offsetlake.rules.policy import FOREVER, Keep
from offsetlake.util.amounts import counted
from offsetlake.util.times import now_ms

JOB = "maintain"

_COUNTS = (
    "segments_deleted", "bytes_deleted", "history_rows_dropped", "audit_events_dropped", "files_compacted",
    "steps_computed", "files_removed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PartitionCut:
    """The segments of one log partition that can be deleted, and what the rest is needed for."""

    cut: Cut
    need: Need

    @property
    def held(self) -> int:
        """The number of segments that are kept because they are needed: all that stay except the active one."""
        return max(self.cut.remaining - 1, 0)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a run would do: the cuts of log partitions, and by table the files to compact (at most) and to vacuum.

    `dropped` names the history and the audit events that are older than their limits, and `without_steps` is the number
    of commits that an older version ingested.
    """

    cuts: list[PartitionCut]
    dropped: plans.MaintainPlan
    without_steps: int
    compacted: dict[str, int]
    removed: dict[str, int]


def maintain(
    lake: Lake,
    log: Path | None,
    retention: VacuumRetention,
    say: Callable[[str], None],
    keep: Keep = FOREVER,
    now: int | None = None,
) -> runs.FinishedRun:
    """Cut a log, drop old history, compact the tables, compare the commits of an older version, and vacuum the tables.

    An interrupted run drops what it had planned to drop, and does everything else again.

    Args:
        lake: The lake.
        log: The folder of the log to cut; None to cut none.
        retention: How long data files that are no longer referenced are kept.
        say: Called with a text for each step.
        keep: How long history and audit events are kept.
        now: The instant from which their age is counted, in ms since the epoch; None: the current time.

    Returns:
        The row of `runs`; its counts are segments_deleted and bytes_deleted of the log, and history_rows_dropped,
        audit_events_dropped, files_compacted, steps_computed and files_removed of the tables.

    Raises:
        LakeBusy: Another job writes to the lake, or was interrupted.
        LogMismatch: The log is not the one that this lake was read from.
        LogBusy: Another process writes to the log, or it is the data folder of a broker.
        LogUnavailable: The log cannot be read or written.
        LakeUnusable: The lake cannot be written.

    """
    with writing(lake, JOB, say):
        # An interrupted job resumes with the log offsets and table versions of its plan, which must not disappear.
        current_run.refuse_unfinished(lake, "was cut short")
        counts = Counter(dict.fromkeys(_COUNTS, 0))
        begin = partial(_begin, lake, keep, now_ms() if now is None else now)
        plan = _cut_log(lake, log, begin, counts, say) if log else begin([])
        counts.update(drop(lake, plan, say))
        _compact_and_vacuum(lake, plan.run_id, retention, counts, say)
        outcome = "done" if any(counts.values()) else "nothing new"
        return current_run.finish(
            lake, JOB, plan, outcome=outcome, log=str(log) if log else None, counts={n: counts[n] for n in _COUNTS}
        )


def preview(lake: Lake, log: Path | None, retention: VacuumRetention, keep: Keep = FOREVER) -> Preview:
    """Return what `maintain` would do, without writing anything. Raises the same errors, but takes no lock."""
    current_run.refuse_unfinished(lake, "still runs or was cut short")
    if log:
        refuse_broker_folder(log)
    return Preview(
        _cuts(lake, log) if log else [],
        plan_cuts(lake, keep, now_ms()),
        sum(commits_without_steps(lake).values()),
        {table: mergeable(lake, table) for table in TABLES},
        {table: upkeep.vacuum(lake, table, retention, dry_run=True) for table in TABLES},
    )


def _begin(lake: Lake, keep: Keep, now: int, cuts: Sequence[PartitionCut]) -> plans.MaintainPlan:
    plan = current_run.unfinished_plan(lake, JOB, plans.MaintainPlan)
    notes = _notes(cuts)
    if plan is None:
        return current_run.begin(lake, JOB, plan_cuts(lake, keep, now).with_notes(*notes))
    done_before = "the counts do not include what was done before the interruption"
    return replace(plan, notes=(runs.RESUMED, done_before, *notes))


def _notes(cuts: Sequence[PartitionCut]) -> list[str]:
    """Return a note for each unexpected reason for which segments are kept."""
    by_reason: dict[str, list[PartitionCut]] = {}
    for partition in cuts:
        if partition.held and not partition.need.expected:
            by_reason.setdefault(partition.need.held_by, []).append(partition)
    return [_note(kept, reason) for reason, kept in by_reason.items()]


def _note(kept: Sequence[PartitionCut], reason: str) -> str:
    where = kept[0].cut.log_partition if len(kept) == 1 else f"{len(kept)} log partitions"
    segments = sum(partition.held for partition in kept)
    return f"{where}: {counted(segments, 'segment')} kept in the log: {reason}"


def _cut_log(
    lake: Lake,
    log: Path,
    begin: Callable[[Sequence[PartitionCut]], plans.MaintainPlan],
    counts: Counter[str],
    say: Callable[[str], None],
) -> plans.MaintainPlan:
    say(f"checking the log {log}")
    repair_after_crash(LogAddress(folder=log))
    _cuts(lake, log)  # refuses another log before a lock file is created in it
    with served(log) as job_socket, nullcontext() if job_socket else owned(log, JOB):
        if job_socket is None:
            recover(log)  # a segment that a swap replaces must not appear again when its replacement is deleted
        cuts = _cuts(lake, log)
        plan = begin(cuts)
        # A server deletes segments of the topic that it appends to.
        to_cut = [
            partition
            for partition in cuts
            if partition.cut.obsolete and (job_socket is None or partition.cut.log_partition.topic == OFFSETS_TOPIC)
        ]
        if to_cut:
            segments = sum(len(partition.cut.obsolete) for partition in to_cut)
            say(f"deleting {counted(segments, 'segment')} of {counted(len(to_cut), 'log partition')}")
            os.sync()  # delta-rs writes without fsync: the lake must be durable before its source is deleted
        for partition in to_cut:
            segments, size = len(partition.cut.obsolete), partition.cut.size
            if job_socket is not None:
                number, position = partition.cut.log_partition.partition, partition.need.position
                segments, size = job_socket.cut(lake.location.identity, number, position)
            else:
                delete(partition.cut)
            counts["segments_deleted"] += segments
            counts["bytes_deleted"] += size
    return plan


def _cuts(lake: Lake, log: Path) -> list[PartitionCut]:
    needs = needs_of_log(lake, LogAddress(folder=log))
    return [PartitionCut(plan_cut(log, where, need.position), need) for where, need in sorted(needs.items())]


def _compact_and_vacuum(
    lake: Lake, run_id: int, retention: VacuumRetention, counts: Counter[str], say: Callable[[str], None]
) -> None:
    say("compacting small files of the tables")
    for table in upkeep.APPENDED:
        counts["files_compacted"] += merge(lake, table, run_id, say)
    counts["steps_computed"] = compute_steps(lake, run_id, say)
    os.sync()  # the new files must be durable before vacuum deletes the files that they replace
    say("vacuuming unreferenced files")
    for table in TABLES:
        counts["files_removed"] += upkeep.vacuum(lake, table, retention, dry_run=False)
        upkeep.checkpoint(lake, table)
