"""`maintain`: what nobody needs any more goes from the log and the lake, and small files of history become few."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from offsetlake.lake import runs, upkeep
from offsetlake.lake.definitions import TABLES
from offsetlake.lake.foreign.guard import writing
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.disk.cutting import Cut, delete, plan_cut
from offsetlake.log.writer.ownership import owned, refuse_brokers_own
from offsetlake.log.writer.served_log import served
from offsetlake.pipeline.maintain.log_retention import Need, needs_of_log

JOB = "maintain"

_COUNTS = ("segments_deleted", "bytes_deleted", "files_compacted", "files_removed")


@dataclass(frozen=True, slots=True)
class PartitionCut:
    """What can go of one log partition, and what is needed of it."""

    cut: Cut
    need: Need

    @property
    def held(self) -> int:
        """Segments that would go, were they not needed: all that stay but the active one."""
        return max(self.cut.staying - 1, 0)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a run would do: by log partition, and by table files to compact (at the most) and files to remove."""

    cuts: list[PartitionCut]
    compacted: dict[str, int]
    removed: dict[str, int]


def maintain(lake: Lake, log: Path | None, vacuum_retention_ms: int, say: Callable[[str], None]) -> runs.Report:
    """Cut the log in folder `log`, where one is named, then look after the tables; gives the run's row of `runs`.

    `counts` are segments_deleted, bytes_deleted (of the log), files_compacted and files_removed (of the tables). A run
    that was cut short is done anew. Raises LakeBusy where another job writes or was cut short, LogMismatch where the
    log is not the one this lake holds, LogBusy where another process writes to it or it is a broker's own,
    LogUnavailable where it cannot be read or written, LakeUnusable where the lake cannot be written.
    """
    with writing(lake, JOB, say):
        # It goes on with its log offsets, and its versions of the tables.
        runs.refuse_unfinished(lake, "was cut short")
        counts = Counter(dict.fromkeys(_COUNTS, 0))
        plan = _cut_log(lake, log, counts, say) if log else _begin(lake, [])
        _look_after_tables(lake, plan.run_id, vacuum_retention_ms, counts, say)
        outcome = "done" if any(counts.values()) else "nothing new"
        return runs.finish(
            lake, JOB, plan, outcome=outcome, log=str(log) if log else None, counts={n: counts[n] for n in _COUNTS}
        )


def preview(lake: Lake, log: Path | None, vacuum_retention_ms: int) -> Preview:
    """Tell what `maintain` would do, and write nothing. Raises what it would raise, but waits for nobody."""
    runs.refuse_unfinished(lake, "still runs or was cut short")
    if log:
        refuse_brokers_own(log)
    return Preview(
        _cuts(lake, log) if log else [],
        {table: upkeep.small_files(lake, table) for table in TABLES},
        {table: upkeep.vacuum(lake, table, vacuum_retention_ms, dry_run=True) for table in TABLES},
    )


def _begin(lake: Lake, cuts: Sequence[PartitionCut]) -> runs.Plan:
    plan = runs.unfinished_plan(lake, JOB, runs.Plan)
    notes = _notes(cuts)
    if plan is None:
        return runs.begin(lake, JOB, runs.Plan(notes=(*notes,)))
    return replace(plan, notes=(runs.RESUMED, "what went before the interruption is not counted", *notes))


def _notes(cuts: Sequence[PartitionCut]) -> list[str]:
    """Say what holds segments back that a person may want to look into, once each reason."""
    by_reason: dict[str, list[PartitionCut]] = {}
    for each in cuts:
        if each.held and not each.need.expected:
            by_reason.setdefault(each.need.held_by, []).append(each)
    return [_note(held, reason) for reason, held in by_reason.items()]


def _note(held: Sequence[PartitionCut], reason: str) -> str:
    where = held[0].cut.log_partition if len(held) == 1 else f"{len(held)} log partitions"
    segments = sum(each.held for each in held)
    return f"{where}: {segments:,} segment{'' if segments == 1 else 's'} held in the log: {reason}"


def _cut_log(lake: Lake, log: Path, counts: Counter[str], say: Callable[[str], None]) -> runs.Plan:
    say(f"looking at the log {log}")
    _cuts(lake, log)  # what is not this lake's log is refused before as much as a lock is put there
    with served(log) as door, nullcontext() if door else owned(log, JOB):
        cuts = _cuts(lake, log)
        plan = _begin(lake, cuts)
        going = [each for each in cuts if each.cut.going]
        if going:
            say(f"deleting {sum(len(each.cut.going) for each in going):,} segments of {len(going)} log partitions")
            os.sync()  # Delta's own log is written without fsync: what goes from here must be for good in the lake
        for each in going:
            segments, size = len(each.cut.going), each.cut.size
            if door is not None:
                segments, size = door.cut(lake.path, each.cut.log_partition.partition, each.need.position)
            else:
                delete(each.cut)
            counts["segments_deleted"] += segments
            counts["bytes_deleted"] += size
    return plan


def _cuts(lake: Lake, log: Path) -> list[PartitionCut]:
    needs = needs_of_log(lake, LogAddress(folder=log))
    return [PartitionCut(plan_cut(log, where, need.position), need) for where, need in sorted(needs.items())]


def _look_after_tables(
    lake: Lake, run_id: int, vacuum_retention_ms: int, counts: Counter[str], say: Callable[[str], None]
) -> None:
    say("compacting small files of the tables")
    for table in upkeep.APPENDED:
        counts["files_compacted"] += upkeep.optimize(lake, table, run_id)
    os.sync()  # as before a cut: what the new files are made of may go at once, where no retention keeps it
    say("removing files of no use")
    for table in TABLES:
        counts["files_removed"] += upkeep.vacuum(lake, table, vacuum_retention_ms, dry_run=False)
        upkeep.checkpoint(lake, table)
