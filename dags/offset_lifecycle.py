"""Runs the lifecycle of committed offsets every ten minutes: ingest, compact, check, expire, check, emit, check.

One run and one writer at a time. Each task works on the result of the previous one: `compact` ignores later ingests,
checks read the table versions after the job that they check, and `expire` fails if another run has compacted the tables
since. `emit` refuses tombstones that were evaluated before the last compaction, or whose offset has changed.

**No tombstone is written until a setting allows it**: the Airflow Variable `offsetlake_emit` is `true`, or the
parameter `emit` of a run is set. A failed check ends the run, and its error names the expectation and the groups.
With `dry_run` the tables are updated and checked, and the log of `what_if` shows what would expire.
"""

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, Param, Variable, chain, task

from lake_fleet import LAKES
from lake_job import NOW, LakeJob, defaults, settings, tables

EMIT = "offsetlake_emit"

for lake in LAKES:
    with DAG(
        lake.own("offset_lifecycle"),
        description="ingest, compact, check, expire, check, emit, check",
        doc_md=__doc__,
        schedule=CronDataIntervalTimetable("*/10 * * * *", timezone="UTC"),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        default_args=defaults(lake),
        params={
            **settings(lake),
            "emit": Param(default=False, type="boolean", description="Write the planned tombstones to the log."),
            "dry_run": Param(default=False, type="boolean", description="Plan nothing; only show what would expire."),
            "what_if_retention": Param(
                "", type="string", description="With dry_run: also show what would expire with 3d, 36h, ..."
            ),
        },
        tags=["offsetlake"],
    ):
        ingest = LakeJob(
            task_id="ingest",
            command=["ingest", "--format=json"],
            outlets=tables(
                lake,
                "offset_commits",
                "transaction_markers",
                "group_records",
                "share_state_records",
                "quarantine",
                "audit_events",
            ),
        )
        compact = LakeJob(
            task_id="compact",
            command=["compact", "--format=json", "--through-run", ingest.output["run_id"]],
            outlets=tables(lake, "offsets", "pending_offsets", "groups", "group_members", "share_partitions"),
        )
        check_compacted = LakeJob(
            task_id="check_compacted",
            command=[
                "check",
                "--format=json",
                "--gate",
                "--suite=after_compact",
                "--versions",
                compact.output["versions"],
            ],
        )
        expire = LakeJob(
            task_id="expire",
            command=["expire", "--format=json", NOW, "--compacted-by", compact.output["run_id"]],
            asks_cluster=True,  # to find deleted topics, as `offsetlake run` does
            outlets=tables(lake, "tombstones"),
        )
        check_planned = LakeJob(
            task_id="check_planned",
            command=[
                "check",
                "--format=json",
                "--gate",
                "--suite=after_expire",
                "--versions",
                expire.output["versions"],
            ],
        )
        what_if = LakeJob(
            task_id="what_if",
            command=[
                *("expire", "--what-if", "--format=table", NOW),
                "{{ '--retention=' ~ params.what_if_retention if params.what_if_retention else '' }}",
            ],
        )
        emit = LakeJob(
            task_id="emit", command=["emit", "--format=json"], outlets=tables(lake, "tombstones", "alterations")
        )
        check_emitted = LakeJob(
            task_id="check_emitted",
            command=["check", "--format=json", "--gate", "--suite=after_emit", "--versions", emit.output["versions"]],
        )

        @task.branch
        def plan_or_preview(params: dict[str, Any]) -> str:
            """Select `what_if` for a dry run, otherwise `expire`."""
            return "what_if" if params["dry_run"] else "expire"

        @task.short_circuit
        def may_emit(variable: str, params: dict[str, Any]) -> bool:
            """Skip `emit` unless the parameter or the Variable allows it."""
            return bool(params["emit"]) or Variable.get(variable, default="false").lower() == "true"

        choice = plan_or_preview()
        chain(
            ingest,
            compact,
            check_compacted,
            choice,
            expire,
            check_planned,
            may_emit(lake.own(EMIT)),
            emit,
            check_emitted,
        )
        choice >> what_if
