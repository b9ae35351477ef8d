"""What a consumer group's offsets go through, every ten minutes: read, compacted, checked, judged, and let go.

`ingest → compact → check → expire → check → emit → check`. One run at a time, one writer at a time; each task is given
what the one before it has done: `compact` takes no ingest behind that of this run, a check looks at the versions that
the job before it has left, and `expire` plans nothing where another has compacted since. `emit` needs no such word: it
refuses what was not judged since the last compaction, and each decision whose commit is no longer the newest.

**Nothing goes until a setting says so**: the Airflow Variable `offsetlake_emit` is `true`, or a run has its parameter
`emit`. A gate that fails ends the run before what is behind it, and says which rule and what it saw.
With `dry_run` the tables are brought up to date and checked; what would go is only told, in the log of `what_if`.
"""

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, Param, Variable, chain, task

from lake_job import DEFAULTS, NOW, SETTINGS, LakeJob, tables

EMIT = "offsetlake_emit"

with DAG(
    "offset_lifecycle",
    description="ingest, compact, check, expire, check, emit, check",
    doc_md=__doc__,
    schedule=CronDataIntervalTimetable("*/10 * * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULTS,
    params={
        **SETTINGS,
        "emit": Param(default=False, type="boolean", description="Write what is planned to the log."),
        "dry_run": Param(default=False, type="boolean", description="Plan nothing; only tell what would go."),
        "what_if_retention": Param("", type="string", description="With dry_run: also what would go with 3d, 36h, ..."),
    },
    tags=["offsetlake"],
):
    ingest = LakeJob(
        task_id="ingest",
        command=["ingest", "--format=json"],
        outlets=tables(
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
        outlets=tables("offsets", "pending_offsets", "groups", "group_members"),
    )
    check_compacted = LakeJob(
        task_id="check_compacted",
        command=["check", "--format=json", "--gate", "--suite=after_compact", "--versions", compact.output["versions"]],
    )
    expire = LakeJob(
        task_id="expire",
        command=["expire", "--format=json", NOW, "--compacted-by", compact.output["run_id"]],
        asks_cluster=True,  # which topics were deleted, as `offsetlake run` does
        outlets=tables("tombstones"),
    )
    check_planned = LakeJob(
        task_id="check_planned",
        command=["check", "--format=json", "--gate", "--suite=after_expire", "--versions", expire.output["versions"]],
    )
    what_if = LakeJob(
        task_id="what_if",
        command=[
            *("expire", "--what-if", "--format=table", NOW),
            "{{ '--retention=' ~ params.what_if_retention if params.what_if_retention else '' }}",
        ],
    )
    emit = LakeJob(task_id="emit", command=["emit", "--format=json"], outlets=tables("tombstones", "alterations"))
    check_emitted = LakeJob(
        task_id="check_emitted",
        command=["check", "--format=json", "--gate", "--suite=after_emit", "--versions", emit.output["versions"]],
    )

    @task.branch
    def plans_or_tells(params: dict[str, Any]) -> str:
        """Choose: a dry run only tells."""
        return "what_if" if params["dry_run"] else "expire"

    @task.short_circuit
    def may_emit(params: dict[str, Any]) -> bool:
        """Let nothing go until the parameter or the Variable says so."""
        return bool(params["emit"]) or Variable.get(EMIT, default="false").lower() == "true"

    choice = plans_or_tells()
    chain(ingest, compact, check_compacted, choice, expire, check_planned, may_emit(), emit, check_emitted)
    choice >> what_if
