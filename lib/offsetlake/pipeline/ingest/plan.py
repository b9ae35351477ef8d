"""Plans an ingest: from the end of the last one to the log end offsets, after a check that the log is the same."""

from dataclasses import replace

from offsetlake.errors import LogMismatch
from offsetlake.lake import plans, runs
from offsetlake.lake.definitions import HISTORY
from offsetlake.lake.files import committed
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.positions import LogExtent, LogPartition, OffsetRange
from offsetlake.log.reading import ranges_from_json, ranges_to_json
from offsetlake.log.writer.ownership import CLUSTER_FILE
from offsetlake.pipeline.ingest.known_log import LastRead, ends_of, last_reads, refuse_changed, same_log
from offsetlake.pipeline.ingest.missing_log import absent_notes, missing_in, partitions_of_log
from offsetlake.util.amounts import counted

Ranges = dict[LogPartition, OffsetRange]


def plan_ingest(log: LogAddress, last: runs.Run | None, lake: Lake) -> plans.IngestPlan:
    """Return the plan of an ingest; `last` is the last run of an ingest. Raises LogUnavailable, LogMismatch."""
    check_log_of_node(lake, log)
    extent = log.describe()
    known = last_reads(last) if last else {}
    ends = ends_of(log, extent, known)  # before the comparison: what is written again later does not equal them
    if last:
        same_log(lake, log, extent, last)
    starts = {where: known[where].position if where in known else held.start for where, held in extent.ranges.items()}
    wanted = {where: OffsetRange(start, extent.ranges[where].end) for where, start in starts.items()}
    ranges, gaps = _within(wanted, extent)
    partitions = partitions_of_log(log, extent, last)
    return plans.IngestPlan(
        log=log.location,
        log_identity=extent.identity or (last.log_identity if last else None),
        ranges=ranges_to_json(ranges),
        gaps=ranges_to_json(gaps),
        positions=tuple(sorted(ends.values())),
        notes=(*extent.notes, *absent_notes(partitions.absent), *_gap_notes(gaps)),
        log_partitions=partitions.count,
        grown=partitions.grown,
        absent=tuple(partitions.absent),
        missing=tuple(missing_in(extent, last)),
    )


def check_log_of_node(lake: Lake, log: LogAddress) -> None:
    """Raise LogMismatch if the lake is that of a node of a cluster, and the log is not one in the folder of a node.

    The cluster has topics of coordinators that the node does not have. `serve` would refuse a lake that has read them.
    """
    adopted = runs.adoption(lake)
    if adopted is not None and (log.folder is None or not (log.folder / CLUSTER_FILE).exists()):
        raise LogMismatch(
            f"The lake {lake.location} is that of {', '.join(adopted.notes)}, whose log is in {adopted.log}: read it "
            f"from there, with --log {adopted.log}. Log end offsets are recorded while `offsetlake serve` runs."
        )


def resume_ingest(plan: plans.IngestPlan, log: LogAddress, lake: Lake) -> plans.IngestPlan | None:
    """Return the plan of an interrupted run without what the log has lost at its start since.

    Return None if the log has lost records at its end since, and the run has committed nothing: it can be planned anew.
    Raises LogUnavailable, LogMismatch.
    """
    extent = log.describe()
    same = extent.identity == plan.log_identity if extent.identity else log.location == plan.log
    if not same:
        raise LogMismatch(
            f"Run {plan.run_id} was interrupted while it read {plan.log}: resume it with that log, not {log}."
        )
    planned = [LastRead(*position) for position in plan.positions]
    try:
        advice = f"run {plan.run_id}, which was interrupted, has read a part of it: read it into a new lake with --lake"
        refuse_changed(lake, log, extent, {last_read.log_partition: last_read for last_read in planned}, advice)
    except LogMismatch:
        if any(committed(lake, table, "ingest", plan.run_id) for table in HISTORY):
            raise
        return None
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
        f"{counted(gap.end - gap.start, 'log offset was', 'log offsets were')} deleted before this lake read them"
        for where, gap in sorted(gaps.items())
    ]
