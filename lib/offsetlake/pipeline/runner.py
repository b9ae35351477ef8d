"""The jobs as the command line and spark-submit run them: cheap checks first, one Spark session, only if needed."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from offsetlake.lake import runs
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.cluster.admin import ClusterAdmin
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.compiling import compile_loops
from offsetlake.log.writer.ownership import refuse_broker_folder
from offsetlake.pipeline.compact import job as compact
from offsetlake.pipeline.compact import rebuild
from offsetlake.pipeline.emit import job as emit
from offsetlake.pipeline.expire import job as expire
from offsetlake.pipeline.ingest import job as ingest
from offsetlake.pipeline.ingest import log_ends
from offsetlake.pipeline.lazy_session import Advance, LazySession
from offsetlake.pipeline.maintain import job as maintain
from offsetlake.rules.policy import RetentionPolicy

JOBS = ("ingest", "compact", "expire", "emit")
"""The jobs of a cycle, in their order."""


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A finished job: its row of table `runs`, and the seconds it took, Spark's start left out."""

    row: runs.Report
    seconds: float


@dataclass(frozen=True, slots=True)
class Expiry:
    """What expire judges by; `now` is ms since the epoch, `compacted_by` the last run that may have compacted."""

    policy: RetentionPolicy
    now: int
    compacted_by: int | None = None


def run_jobs(
    lake_path: Path,
    log: LogAddress | None,
    jobs: Collection[str],
    expiry: Expiry | None,
    say: Callable[[str], None],
    through_run: int | None = None,
    advance: Advance = lambda *_: None,
) -> list[FinishedJob]:
    """Run those of JOBS that are named, in their order; where the log is read for the first time, a lake is made.

    `ingest` and `emit` take a log, `expire` an expiry; where the log is a live cluster's, `ingest` asks it where topics
    end, and `expire` which there are no more. `through_run` is the newest run whose ingest `compact` takes; `advance`
    is called with how many of Spark's tasks are done, and of how many. Raises what the jobs raise; a log or lake that
    is not there is found before Spark starts.
    """
    if log is not None and "ingest" in jobs:
        compile_loops(say)
        say(f"looking at the log {log}")
        log.describe()  # a log that cannot be read leaves no new lake behind, and costs no start of Spark
    else:
        Lake.open(lake_path)
    if log is not None and log.folder is not None and "emit" in jobs:
        refuse_broker_folder(log.folder)  # better now than behind all the other jobs
    lake = Lake.create(lake_path)
    with LazySession("offsetlake", say, advance) as spark:
        work: dict[str, Callable[[], runs.Report]] = {
            "compact": partial(compact.compact, spark, lake, say, through_run)
        }
        if log is not None:
            ask = partial(log_ends.ask, log.connection) if log.connection is not None else None
            work |= {
                "ingest": partial(ingest.ingest, spark, lake, log, say, ask),
                "emit": partial(emit.emit, lake, log, say),
            }
        if expiry is not None:
            missing = partial(_missing, log.connection) if log is not None and log.connection is not None else None
            work["expire"] = partial(
                expire.expire, spark, lake, expiry.policy, expiry.now, say, missing, expiry.compacted_by
            )
        return [done for job in JOBS if job in jobs for done in _to_the_end(work[job], spark)]


def catch_up(lake: Lake, log: LogAddress, say: Callable[[str], None]) -> None:
    """Bring the tables up to the log's end without Spark: what came since the last cycle, for one who waits."""
    compile_loops(say)
    for job in (partial(ingest.ingest, _here, lake, log, say), partial(compact.compact, _here, lake, say)):
        while job().resumed:
            pass


def _missing(connection: KafkaConnection, topics: Collection[str]) -> set[str]:
    with ClusterAdmin(connection) as admin:
        return admin.missing(topics) if topics else set()


def _here() -> None:
    return None


def run_maintain(
    lake_path: Path, log: Path | None, vacuum_retention_ms: int, say: Callable[[str], None]
) -> FinishedJob:
    """Run maintain, which needs no Spark, on a lake that is there; raises what it raises."""
    Lake.open(lake_path)
    began = time.monotonic()
    row = maintain.maintain(Lake.create(lake_path), log, vacuum_retention_ms, say)
    return FinishedJob(row, time.monotonic() - began)


def run_rebuild(
    lake_path: Path, tables: Sequence[str], log_partition: int | None, say: Callable[[str], None]
) -> FinishedJob:
    """Run rebuild on a lake that is there; raises what it raises."""
    Lake.open(lake_path)
    lake = Lake.create(lake_path)
    with LazySession("offsetlake", say) as spark:
        return _timed(partial(rebuild.rebuild, spark, lake, say, tables, log_partition), spark)


def _to_the_end(job: Callable[[], runs.Report], spark: LazySession) -> Iterator[FinishedJob]:
    """Run a job, and again where that only finished a run that was cut short: for what came since."""
    done = _timed(job, spark)
    yield done
    if done.row.resumed:
        yield _timed(job, spark)


def _timed(job: Callable[[], runs.Report], spark: LazySession) -> FinishedJob:
    began, starting = time.monotonic(), spark.seconds
    row = job()
    return FinishedJob(row, time.monotonic() - began - (spark.seconds - starting))
