"""Runs jobs for the command line and spark-submit, with cheap checks first and Spark only if needed."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa

from offsetlake.lake import runs
from offsetlake.lake.foreign.guard import writing
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import LakeLocation
from offsetlake.lake.scratch import scratch
from offsetlake.lake.upkeep import VacuumRetention
from offsetlake.log.address import LogAddress
from offsetlake.log.cluster.admin_client import cluster_admin
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.compiling import compile_loops
from offsetlake.log.readiness import repair_after_crash
from offsetlake.log.writer.ownership import CLUSTER_FILE, refuse_broker_folder
from offsetlake.pipeline.changes import execute as changes
from offsetlake.pipeline.compact import job as compact
from offsetlake.pipeline.compact import rebuild
from offsetlake.pipeline.emit import job as emit
from offsetlake.pipeline.expire import job as expire
from offsetlake.pipeline.ingest import job as ingest
from offsetlake.pipeline.ingest import log_ends
from offsetlake.pipeline.lazy_session import Advance, LazySession
from offsetlake.pipeline.maintain import forget
from offsetlake.pipeline.maintain import job as maintain
from offsetlake.rules.policy import Keep, RetentionPolicy
from offsetlake.rules.reduction import KEY

JOBS = ("ingest", "compact", "expire", "emit")
"""The jobs of a cycle in their order."""


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """The row of `runs` of a finished job, and its duration in seconds without the start of Spark."""

    row: runs.FinishedRun
    seconds: float


@dataclass(frozen=True, slots=True)
class Expiry:
    """The parameters of `expire`: the policy, the time in ms since the epoch, and `compacted_by` of `expire`."""

    policy: RetentionPolicy
    now: int
    compacted_by: int | None = None


def run_jobs(
    lake_location: LakeLocation,
    log: LogAddress | None,
    jobs: Collection[str],
    expiry: Expiry | None,
    say: Callable[[str], None],
    through_run: int | None = None,
    advance: Advance = lambda *_: None,
    spark_properties: Mapping[str, str] = MappingProxyType({}),
) -> list[FinishedJob]:
    """Run jobs in the order of JOBS. `ingest` creates the lake if it does not exist.

    Args:
        lake_location: The location of the lake.
        log: The log for `ingest` and `emit`. From a live cluster, `ingest` also reads the log end offsets of topics,
            and `expire` the topics that were deleted.
        jobs: The names of the jobs.
        expiry: The parameters of `expire`.
        say: Called with a text for each step.
        through_run: The newest run whose ingest `compact` includes; None for all.
        advance: Called with the number of finished and of all Spark tasks.
        spark_properties: Spark properties, as for `offsetlake.pipeline.spark.build_session`.

    Returns:
        The finished jobs; a job that resumed an interrupted run is followed by another one for what came since.

    Raises what the jobs raise; a missing log or lake is detected before Spark starts.
    """
    _check_log_and_lake(lake_location, log, jobs, say)
    lake, name = Lake.create(lake_location), "run" if len(jobs) > 1 else next(iter(jobs))
    with LazySession(spark_properties, say, advance) as spark, writing(lake, name, say):
        work: dict[str, Callable[[], runs.FinishedRun]] = {
            "compact": partial(compact.compact, spark, lake, say, through_run)
        }
        if log is not None:
            work |= {
                "ingest": partial(ingest.ingest, spark, lake, log, say, _asking(log)),
                "emit": partial(emit.emit, lake, log, say),
            }
        if expiry is not None:
            missing = partial(_missing, log.connection) if log is not None and log.connection is not None else None
            work["expire"] = partial(
                expire.expire, spark, lake, expiry.policy, expiry.now, say, missing, expiry.compacted_by
            )
        return [finished for job in JOBS if job in jobs for finished in _run_to_end(work[job], spark)]


def _asking(log: LogAddress) -> log_ends.Ask | None:
    """Return the function that reads log end offsets: from the live cluster, or from the node whose log it is."""
    if log.connection is not None:
        return partial(log_ends.ask, log.connection)
    if log.folder is not None and (log.folder / CLUSTER_FILE).exists():
        return partial(log_ends.ask_node, log.folder)
    return None


def _check_log_and_lake(
    lake_location: LakeLocation, log: LogAddress | None, jobs: Collection[str], say: Callable[[str], None]
) -> None:
    """Raise what the jobs would raise about the log or the lake, before a lake is created and Spark is started."""
    if log is not None and "ingest" in jobs:
        compile_loops(say)
        say(f"checking the log {log}")
        repair_after_crash(log)
        log.describe()
    else:
        Lake.open(lake_location)
    if log is not None and log.folder is not None and "emit" in jobs:
        refuse_broker_folder(log.folder)


def catch_up(lake: Lake, log: LogAddress, say: Callable[[str], None]) -> None:
    """Ingest and compact new records in this process, without Spark, so that the tables are up to date with the log."""
    compile_loops(say)
    for job in (partial(ingest.ingest, _no_spark, lake, log, say), partial(compact.compact, _no_spark, lake, say)):
        while job().resumed:
            pass


@contextmanager
def up_to_date_copy(lake: Lake, log: LogAddress, say: Callable[[str], None]) -> Iterator[Lake]:
    """Yield a temporary copy of the lake that is up to date with the log, see `scratch`."""
    with scratch(lake) as copy:
        catch_up(copy, log, say)
        yield copy


Plan = Callable[[Lake], pa.Table]
"""Makes the plan of a change from a lake that is up to date with its log, see `offsetlake.pipeline.changes.execute`."""


def plan_change(lake: Lake, log: LogAddress, plan: Plan, say: Callable[[str], None]) -> pa.Table:
    """Return the plan of a change with the outcome of each row, in the order of keys; write nothing to the lake."""
    with up_to_date_copy(lake, log, say) as copy:
        return changes.with_outcome(plan(copy)).sort_by([(name, "ascending") for name in KEY])


def execute_change(
    lake: Lake,
    log: LogAddress,
    job: str,
    table: str,
    plan: Plan,
    say: Callable[[str], None],
    requester: str | None = None,
) -> tuple[pa.Table, runs.FinishedRun]:
    """Bring the lake up to date with the log, execute the plan of a change, and read what was written.

    Args and results are those of `offsetlake.pipeline.changes.execute.execute`.
    """
    writable = Lake.create(lake.location)
    catch_up(writable, log, say)
    result = changes.execute(writable, log, job, table, lambda: plan(writable), say, requester=requester)
    catch_up(writable, log, say)
    return result


def _missing(connection: KafkaConnection, topics: Collection[str]) -> set[str]:
    with cluster_admin(connection) as admin:
        return admin.missing(topics) if topics else set()


def _no_spark() -> None:
    return None


def run_emit(
    lake_location: LakeLocation,
    log: LogAddress,
    say: Callable[[str], None],
    selected: pa.Table,
    requester: str | None = None,
) -> FinishedJob:
    """Emit selected tombstones only, without Spark; the arguments and errors are those of `emit`."""
    Lake.open(lake_location)
    if log.folder is not None:
        refuse_broker_folder(log.folder)
    began = time.monotonic()
    row = emit.emit(Lake.create(lake_location), log, say, selected, requester)
    return FinishedJob(row, time.monotonic() - began)


def run_maintain(
    lake_location: LakeLocation, log: Path | None, retention: VacuumRetention, keep: Keep, say: Callable[[str], None]
) -> FinishedJob:
    """Run `maintain` on an existing lake, without Spark; raises what it raises."""
    Lake.open(lake_location)
    began = time.monotonic()
    row = maintain.maintain(Lake.create(lake_location), log, retention, say, keep)
    return FinishedJob(row, time.monotonic() - began)


def run_forget(lake_location: LakeLocation, principal: str, say: Callable[[str], None]) -> FinishedJob:
    """Run `forget` on an existing lake, without Spark; raises what it raises."""
    Lake.open(lake_location)
    began = time.monotonic()
    row = forget.forget(Lake.create(lake_location), principal, say)
    return FinishedJob(row, time.monotonic() - began)


def run_rebuild(
    lake_location: LakeLocation,
    tables: Sequence[str],
    log_partition: int | None,
    say: Callable[[str], None],
    spark_properties: Mapping[str, str],
) -> FinishedJob:
    """Run `rebuild` on an existing lake; raises what it raises."""
    Lake.open(lake_location)
    lake = Lake.create(lake_location)
    with LazySession(spark_properties, say) as spark:
        return _timed(partial(rebuild.rebuild, spark, lake, say, tables, log_partition), spark)


def _run_to_end(job: Callable[[], runs.FinishedRun], spark: LazySession) -> Iterator[FinishedJob]:
    """Run a job, and once more if it resumed an interrupted run, for what came since."""
    finished = _timed(job, spark)
    yield finished
    if finished.row.resumed:
        yield _timed(job, spark)


def _timed(job: Callable[[], runs.FinishedRun], spark: LazySession) -> FinishedJob:
    began, starting = time.monotonic(), spark.seconds
    row = job()
    return FinishedJob(row, time.monotonic() - began - (spark.seconds - starting))
