"""`expire`: evaluates the retention rules of a broker, and plans tombstones. No tombstone is written until `emit`."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from offsetlake.errors import LakeBusy
from offsetlake.lake import current_run, plans, runs
from offsetlake.lake.files import commit
from offsetlake.lake.foreign.guard import writing
from offsetlake.lake.history.history_files import ALL_RUNS, partition_files
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import stored_topics
from offsetlake.pipeline.expire.evaluation import evaluated_tables, start_evaluation
from offsetlake.pipeline.expire.last_evaluation import LastEvaluation, same_evaluation
from offsetlake.pipeline.expire.rejections import keep_rejections, rejections
from offsetlake.pipeline.expire.task import Decided, Planned, plan_tombstones
from offsetlake.pipeline.parallel import chunk_partitions, distribute
from offsetlake.rules.policy import Override, RetentionPolicy
from offsetlake.rules.retention import NEVER
from offsetlake.util.amounts import counted
from offsetlake.util.times import to_iso

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "expire"
_DECISIONS = ("planned", "withdrawn", "gone")
MAX_LOCAL_OFFSETS = 1_000_000  # evaluating these takes less time than starting Spark

USUAL_DELAY_MS = 60 * 60 * 1000
"""An evaluation whose time is older than the newest commit by more has a note about it. A schedule sets the time before
`ingest` reads, and groups of a busy cluster commit meanwhile."""

Missing = Callable[[Collection[str]], set[str]]
"""Returns which of the topics do not exist."""


@dataclass(frozen=True, kw_only=True)
class ExpirePlan(plans.Plan):
    """What an evaluation depends on.

    | Field          | Description |
    |----------------|-------------|
    | now, policy    | The time in ms since the epoch, and the policy. |
    | versions       | The table versions that it reads. |
    | deleted_topics | The topics that were deleted. |
    | open_run       | No older run has decisions that are still planned, or that the tables do not include yet. |
    | through_run    | The newest ingest run that the tables include. |
    """

    now: int
    policy: RetentionPolicy
    versions: dict[str, int]
    deleted_topics: tuple[str, ...] = ()
    open_run: int = 0
    through_run: int = 0

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return the plan that `to_json` wrote."""
        overrides = tuple(Override(**override) for override in stored["policy"]["overrides"])
        of_share_groups = stored["policy"].get("share_idle_ms")  # programs before lake version 8 had no such policy
        policy = RetentionPolicy(stored["policy"]["default_ms"], overrides, of_share_groups)
        return replace(super().from_json(stored), policy=policy)


def expire(
    spark: Callable[[], "SparkSession"],
    lake: Lake,
    policy: RetentionPolicy,
    now: int,
    say: Callable[[str], None],
    missing: Missing | None = None,
    compacted_by: int | None = None,
) -> runs.FinishedRun:
    """Evaluate the retention rules for every stored offset, and update the planned tombstones.

    An interrupted run is resumed with the time and the policy of its plan.

    Args:
        spark: Returns the Spark session; called only if there are more than MAX_LOCAL_OFFSETS offsets.
        lake: The lake.
        policy: The retention policy.
        now: The time of the evaluation in ms since the epoch.
        say: Called with a text for each step.
        missing: Returns which of the topics of all offsets were deleted; None without a live cluster.
        compacted_by: If not None, the evaluation fails if a later run than this one has compacted the tables.

    Returns:
        The row of `runs`. Its counts are the number of offsets and of deleted groups by rule, and the number of
        tombstones that were planned, withdrawn (this evaluation does not plan them any more) and gone (the offset or
        group does not exist any more).

    Raises:
        LakeBusy: Another job writes to the lake, or has compacted it after `compacted_by`.
        LakeUnusable: The lake cannot be written.

    """
    with writing(lake, JOB, say):
        plan = current_run.unfinished_plan(lake, JOB, ExpirePlan)
        if plan:
            say(f"run {plan.run_id} was interrupted: resuming it first")
            plan = plan.with_notes(runs.RESUMED, f"the resumed run evaluated at {to_iso(plan.now)}")
        else:
            _check_not_compacted_since(lake, compacted_by)
            plan = _plan(lake, policy, now, missing)
            if last := same_evaluation(lake, plan.now, plan.versions, policy, plan.deleted_topics):
                idle = current_run.begin(lake, JOB, plan, idle=True)
                return _finish(lake, idle, Counter(last.counts), last.oldest_planned)
            plan = current_run.begin(lake, JOB, plan)
        return _evaluate(spark, lake, plan, say)


def _check_not_compacted_since(lake: Lake, compacted_by: int | None) -> None:
    compacted = runs.last_run(lake, "compact", "done")
    if compacted_by is not None and compacted and compacted.run_id > compacted_by:
        raise LakeBusy(
            f"Run {compacted.run_id} compacted {lake.location} after run {compacted_by}: the tables are not those that "
            "were checked. Start again with `offsetlake compact`."
        )


def _plan(lake: Lake, policy: RetentionPolicy, now: int, missing: Missing | None) -> ExpirePlan:
    deleted = missing(stored_topics(lake)) if missing else ()
    compacted = runs.last_run(lake, "compact")
    return ExpirePlan(
        now=now,
        policy=policy,
        versions=lake.versions(*evaluated_tables(lake, policy), "tombstones"),
        deleted_topics=(*sorted(deleted),),
        open_run=runs.open_run(lake, JOB, "emit"),
        through_run=(compacted.through_run if compacted else None) or 0,
    )


def _evaluate(
    spark: Callable[[], "SparkSession"], lake: Lake, plan: ExpirePlan, say: Callable[[str], None]
) -> runs.FinishedRun:
    """Write the decisions and the row of the run; return the row."""
    results = _decide(spark, lake, plan, say)
    commit(lake, "tombstones", [result.changes for result in results], JOB, plan.run_id)
    if results:
        keep_rejections(lake, pa.concat_tables([result.rejected for result in results]))
    counts: Counter[str] = Counter(dict.fromkeys(_DECISIONS, 0))
    for result in results:
        counts.update(result.counts)
    oldest_planned = min((result.oldest_planned for result in results), default=ALL_RUNS)
    newest = max((result.newest_commit for result in results), default=0)
    if plan.now < newest - USUAL_DELAY_MS:
        plan = plan.with_notes(
            f"evaluated at {to_iso(plan.now)}, before the newest commit ({to_iso(newest)}): later commits are not "
            "expired"
        )
    elif runs.RESUMED not in plan.notes:
        LastEvaluation(
            now=plan.now,
            next_change=min((result.next_change for result in results), default=NEVER),
            versions=lake.versions(*evaluated_tables(lake, plan.policy), "tombstones"),
            policy=plan.policy,
            deleted_topics=plan.deleted_topics,
            counts={name: count for name, count in counts.items() if name not in _DECISIONS},
            oldest_planned=oldest_planned,
        ).record(lake)
    return _finish(lake, plan, counts, oldest_planned)


def _decide(
    spark: Callable[[], "SparkSession"], lake: Lake, plan: ExpirePlan, say: Callable[[str], None]
) -> list[Planned]:
    """Evaluate the log partitions with offsets, groups or planned tombstones, in parallel."""
    evaluation = start_evaluation(lake, plan.versions, plan.policy, plan.now, plan.deleted_topics, rejections(lake))
    decided = partition_files(lake, "tombstones", plan.versions["tombstones"], plan.open_run)
    spans = [range(file.first_partition, file.last_partition + 1) for file in decided]
    partitions = sorted({*evaluation.partitions, *chain(*spans)})
    if not partitions:
        return []
    say(f"evaluating the offsets of {counted(len(partitions), 'log partition')}")
    task = partial(plan_tombstones, evaluation, plan.run_id, Decided(decided, plan.open_run))
    session = None if lake.count("offsets") <= MAX_LOCAL_OFFSETS else spark()
    return distribute(session, task, chunk_partitions(session, partitions))


def _finish(lake: Lake, plan: ExpirePlan, counts: Counter[str], oldest_planned: int) -> runs.FinishedRun:
    """Write the row of a run."""
    decisions = dict.fromkeys(_DECISIONS, 0) | counts
    # Later runs than those that the tables include may have emitted tombstones.
    coverage = runs.Coverage(open_run=min(plan.through_run + 1, oldest_planned))
    outcome = "done" if any(decisions[name] for name in _DECISIONS) else "nothing new"
    return current_run.finish(
        lake, JOB, plan, outcome=outcome, counts=dict(sorted(decisions.items())), coverage=coverage
    )
