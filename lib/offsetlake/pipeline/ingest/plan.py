"""Plans an ingest: from the end of the last one to the log end offsets, after a check that the log is the same."""

from dataclasses import replace

from offsetlake.errors import LakeUnusable, LogMismatch
from offsetlake.lake import plans, runs
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.positions import LogExtent, LogPartition, OffsetRange
from offsetlake.log.reading import ranges_from_json, ranges_to_json

Ranges = dict[LogPartition, OffsetRange]


def plan_ingest(log: LogAddress, last: runs.Run | None, lake: Lake) -> plans.IngestPlan:
    """Return the plan of an ingest; `last` is the last run of an ingest. Raises LogUnavailable, LogMismatch."""
    extent = log.describe()
    known = positions_of(last) if last else {}
    if last:
        same_log(lake, log, extent, last)
    starts = {where: known[where].position if where in known else held.start for where, held in extent.ranges.items()}
    wanted = {where: OffsetRange(start, extent.ranges[where].end) for where, start in starts.items()}
    ranges, gaps = _within(wanted, extent)
    positions = {where: held.position for where, held in known.items()} | {
        where: held.end for where, held in extent.ranges.items()
    }
    return plans.IngestPlan(
        log=log.location,
        log_identity=extent.identity or (last.log_identity if last else None),
        ranges=ranges_to_json(ranges),
        gaps=ranges_to_json(gaps),
        positions=tuple((*where, position) for where, position in sorted(positions.items())),
        notes=(*extent.notes, *_gap_notes(gaps)),
    )


def check_same_log(lake: Lake, log: LogAddress, extent: LogExtent) -> None:
    """Raise LogMismatch if the lake was read from another log, LakeUnusable if it has read none."""
    last = runs.last_run(lake, "ingest")
    if last is None:
        raise LakeUnusable(f"The lake {lake.location} has not read a log yet: run `offsetlake run`.")
    same_log(lake, log, extent, last)


def resume_ingest(plan: plans.IngestPlan, log: LogAddress) -> plans.IngestPlan:
    """Return the plan of an interrupted run without what the log has lost at its start since.

    Raises LogUnavailable, LogMismatch.
    """
    extent = log.describe()
    same = extent.identity == plan.log_identity if extent.identity else log.location == plan.log
    if not same:
        raise LogMismatch(
            f"Run {plan.run_id} was interrupted while it read {plan.log}: resume it with that log, not {log}."
        )
    ranges, gaps = _within(ranges_from_json(plan.ranges), extent)
    resumed = replace(plan, ranges=ranges_to_json(ranges), gaps=ranges_to_json(ranges_from_json(plan.gaps) | gaps))
    return resumed.with_notes(runs.RESUMED, *_gap_notes(gaps))


def _within(wanted: Ranges, extent: LogExtent) -> tuple[Ranges, Ranges]:
    """Limit ranges to what the log contains; return them, and the gaps at their start."""
    ranges, gaps = {}, {}
    for where, offsets in wanted.items():
        held = extent.ranges.get(where, OffsetRange(offsets.end, offsets.end))
        if offsets.start < held.start:
            gaps[where] = OffsetRange(offsets.start, min(held.start, offsets.end))
        if max(offsets.start, held.start) < offsets.end:
            ranges[where] = OffsetRange(max(offsets.start, held.start), offsets.end)
    return ranges, gaps


def _gap_notes(gaps: Ranges) -> list[str]:
    return [
        f"GAP: {where} was read up to log offset {gap.start}, but now starts at {gap.end}: "
        f"{gap.end - gap.start:,} log offsets were deleted before this lake read them"
        for where, gap in sorted(gaps.items())
    ]


def positions_of(ingested: runs.Run) -> dict[LogPartition, runs.LogPosition]:
    """Return the positions that an ingest recorded, by log partition."""
    return {LogPartition(row.topic, row.partition): row for row in ingested.positions or ()}


def same_log(lake: Lake, log: LogAddress, extent: LogExtent, last: runs.Run) -> None:
    """Raise LogMismatch if the lake was read from another log; `last` is the last run of an ingest.

    A log that can be neither confirmed nor rejected passes: the tail of a partition may have been compacted or deleted.
    """
    advice = f"a lake contains one log: select another lake with --lake, or the right log (last: {last.log})"
    if extent.identity and last.log_identity and extent.identity != last.log_identity:
        raise LogMismatch(
            f"{log} is the log of cluster {extent.identity}, but {lake.location} contains that of {last.log_identity}; "
            f"{advice}."
        )
    for where, last_read in sorted(positions_of(last).items()):
        held = extent.ranges.get(where)
        if held is None and last_read.position:
            raise LogMismatch(f"{log} has no {where}, which {lake.location} has read; {advice}.")
        if held and held.end < last_read.position:
            raise LogMismatch(
                f"{where} of {log} ends at offset {held.end}, but {lake.location} has read up to {last_read.position}: "
                f"it is another log, an older copy, or it lost records; {advice}."
            )
        if extent.identity is None and last_read.tail_checksum is not None:
            found = log.tail_checksum(where, last_read.position)
            if found not in (None, last_read.tail_checksum):
                raise LogMismatch(
                    f"The batch of {where} before offset {last_read.position} is not the one that {lake.location} "
                    f"read; {advice}."
                )
