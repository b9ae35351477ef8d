"""`expire`: evaluates the retention rules of a broker, and plans tombstones. No tombstone is written until `emit`."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from offsetlake.errors import LakeBusy
from offsetlake.lake import runs
from offsetlake.lake.files import commit
from offsetlake.lake.foreign.guard import writing
from offsetlake.lake.history_files import partition_files
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.expire.task import EVALUATED, plan_tombstones, start_evaluation
from offsetlake.pipeline.parallel import chunk_partitions, distribute
from offsetlake.rules.policy import Override, RetentionPolicy
from offsetlake.util.times import to_iso

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "expire"
MAX_LOCAL_OFFSETS = 1_000_000  # evaluating these takes less time than starting Spark

Missing = Callable[[Collection[str]], set[str]]
"""Returns which of the topics do not exist."""


@dataclass(frozen=True, kw_only=True)
class ExpirePlan(runs.Plan):
    """The time and policy of an evaluation, the topics that were deleted, and the table versions that it reads."""

    now: int
    policy: RetentionPolicy
    versions: dict[str, int]
    deleted_topics: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return the plan that `to_json` wrote."""
        overrides = tuple(Override(**override) for override in stored["policy"]["overrides"])
        policy = RetentionPolicy(stored["policy"]["default_ms"], overrides)
        return replace(super().from_json(stored), policy=policy)


def expire(
    spark: Callable[[], "SparkSession"],
    lake: Lake,
    policy: RetentionPolicy,
    now: int,
    say: Callable[[str], None],
    missing: Missing | None = None,
    compacted_by: int | None = None,
) -> runs.Report:
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
        The row of `runs`. Its counts are the number of offsets by rule, and the number of tombstones that were planned,
        withdrawn (this evaluation does not plan them any more) and gone (the offset or group does not exist any more).

    Raises:
        LakeBusy: Another job writes to the lake, or has compacted it after `compacted_by`.
        LakeUnusable: The lake cannot be written.

    """
    with writing(lake, JOB, say):
        plan = runs.unfinished_plan(lake, JOB, ExpirePlan)
        if plan:
            say(f"run {plan.run_id} was interrupted: resuming it first")
            plan = plan.with_notes(runs.RESUMED, f"the resumed run evaluated at {to_iso(plan.now)}")
        else:
            _check_not_compacted_since(lake, compacted_by)
            plan = _plan(lake, policy, now)
            if missing:
                topics = lake.query("SELECT DISTINCT topic FROM offsets", "offsets")["topic"].to_pylist()
                plan = replace(plan, deleted_topics=(*sorted(missing(topics)),))
            plan = runs.begin(lake, JOB, plan)
        counts = _evaluate(spark, lake, plan, say)
        outcome = "done" if counts["planned"] + counts["withdrawn"] + counts["gone"] else "nothing new"
        return runs.finish(lake, JOB, plan, outcome=outcome, counts=dict(sorted(counts.items())))


def _check_not_compacted_since(lake: Lake, compacted_by: int | None) -> None:
    compacted = runs.last_run(lake, "compact", "done")
    if compacted_by is not None and compacted and compacted.run_id > compacted_by:
        raise LakeBusy(
            f"Run {compacted.run_id} compacted {lake.path} after run {compacted_by}: the tables are not those that "
            "were checked. Start again with `offsetlake compact`."
        )


def _plan(lake: Lake, policy: RetentionPolicy, now: int) -> ExpirePlan:
    newest = lake.query("SELECT max(commit_timestamp) AS newest FROM offsets", "offsets")["newest"][0].as_py()
    plan = ExpirePlan(now=now, policy=policy, versions=lake.versions(*EVALUATED, "tombstones"))
    if newest is not None and now < newest:
        return plan.with_notes(
            f"evaluated at {to_iso(now)}, before the newest commit ({to_iso(newest)}): later commits are not expired"
        )
    return plan


def _evaluate(
    spark: Callable[[], "SparkSession"], lake: Lake, plan: ExpirePlan, say: Callable[[str], None]
) -> Counter[str]:
    evaluation = start_evaluation(lake, plan.versions, plan.policy, plan.now, plan.deleted_topics)
    counts: Counter[str] = Counter(planned=0, withdrawn=0, gone=0)
    if not evaluation.partitions:
        return counts
    say(f"evaluating the offsets of {len(evaluation.partitions)} log partitions")
    decided = partition_files(lake, "tombstones", plan.versions["tombstones"])
    task = partial(plan_tombstones, evaluation, plan.run_id, decided)
    session = None if lake.count("offsets") <= MAX_LOCAL_OFFSETS else spark()
    results = distribute(session, task, chunk_partitions(session, evaluation.partitions))
    commit(lake, "tombstones", [changes for changes, _ in results], JOB, plan.run_id)
    for _, task_counts in results:
        counts.update(task_counts)
    return counts
