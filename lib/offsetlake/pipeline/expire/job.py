"""`expire`: what retention lets go, by the rules of a broker, planned into `tombstones`. Nothing goes by this alone."""

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
from offsetlake.pipeline.expire.task import JUDGED, judgement, plan_tombstones
from offsetlake.pipeline.parallel import chunk_partitions, distribute
from offsetlake.rules.policy import Override, RetentionPolicy
from offsetlake.util.times import to_iso

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "expire"
JUDGED_HERE = 1_000_000  # offsets: so many are judged in less time than Spark takes to start


Missing = Callable[[Collection[str]], set[str]]
"""Says which of some topics there are no more."""


@dataclass(frozen=True, kw_only=True)
class ExpirePlan(runs.Plan):
    """The instant and the policy of an evaluation, the topics a cluster no longer has, and the versions it reads."""

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
    """Judge every stored offset at the instant `now`, ms since the epoch; gives the run's row of `runs`.

    `missing` is asked about the topics of all offsets, where a cluster can be asked. `compacted_by` is the number of a
    run: where another has compacted behind it, nothing is judged.

    `counts` tell how often each rule decided, and of tombstones how many were planned anew, how many withdrawn (an
    earlier judgement planned them, this one does not), how many are gone (another took them, or an emit that was cut
    short). A run that was cut short is finished by its plan, with its own policy and instant. Raises LakeBusy where
    another job writes or has compacted since, LakeUnusable where the lake cannot be written.
    """
    with writing(lake, JOB, say):
        plan = runs.unfinished_plan(lake, JOB, ExpirePlan)
        if plan:
            say(f"run {plan.run_id} was cut short: finishing it first")
            plan = plan.with_notes(runs.RESUMED, f"that was for the instant {to_iso(plan.now)}")
        else:
            _refuse_what_was_compacted_since(lake, compacted_by)
            plan = _plan(lake, policy, now)
            if missing:
                topics = lake.query("SELECT DISTINCT topic FROM offsets", "offsets")["topic"].to_pylist()
                plan = replace(plan, deleted_topics=(*sorted(missing(topics)),))
            plan = runs.begin(lake, JOB, plan)
        counts = _judge(spark, lake, plan, say)
        outcome = "done" if counts["planned"] + counts["withdrawn"] + counts["gone"] else "nothing new"
        return runs.finish(lake, JOB, plan, outcome=outcome, counts=dict(sorted(counts.items())))


def _refuse_what_was_compacted_since(lake: Lake, compacted_by: int | None) -> None:
    compacted = runs.last_run(lake, "compact", "done")
    if compacted_by is not None and compacted and compacted.run_id > compacted_by:
        raise LakeBusy(
            f"run {compacted.run_id} has compacted {lake.path} behind run {compacted_by}: what would be judged is "
            "not what was looked at; begin again with `offsetlake compact`"
        )


def _plan(lake: Lake, policy: RetentionPolicy, now: int) -> ExpirePlan:
    newest = lake.query("SELECT max(commit_timestamp) AS newest FROM offsets", "offsets")["newest"][0].as_py()
    plan = ExpirePlan(now=now, policy=policy, versions=lake.versions(*JUDGED, "tombstones"))
    if newest is not None and now < newest:
        return plan.with_notes(
            f"judged for {to_iso(now)}, before the newest commit ({to_iso(newest)}): what it misses goes later"
        )
    return plan


def _judge(
    spark: Callable[[], "SparkSession"], lake: Lake, plan: ExpirePlan, say: Callable[[str], None]
) -> Counter[str]:
    of = judgement(lake, plan.versions, plan.policy, plan.now, plan.deleted_topics)
    counts: Counter[str] = Counter(planned=0, withdrawn=0, gone=0)
    if not of.partitions:
        return counts
    say(f"judging the offsets of {len(of.partitions)} log partitions")
    decided = partition_files(lake, "tombstones", plan.versions["tombstones"])
    task = partial(plan_tombstones, of, plan.run_id, decided)
    session = None if lake.count("offsets") <= JUDGED_HERE else spark()
    made = distribute(session, task, chunk_partitions(session, of.partitions))
    commit(lake, "tombstones", [exchange for exchange, _ in made], JOB, plan.run_id)
    for _, of_task in made:
        counts.update(of_task)
    return counts
