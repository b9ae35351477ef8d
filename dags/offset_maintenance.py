"""Looks after the lake, once a day: small files become few, what no table names goes, what hangs or is in part is told.

`maintain` cuts a log only where the parameter `cut_log` names it: a log that is the lake's own, never a broker's. It
refuses while a job that was cut short has not been finished, and is tried again. What is to be repaired is only told,
in the logs of `commits_in_part` and `hanging_transactions`; `offsetlake repair` mends a log of our own.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from lake_job import DEFAULTS, NOW, SETTINGS, LakeJob

with DAG(
    "offset_maintenance",
    description="maintain; tell what is to be repaired",
    doc_md=__doc__,
    schedule=CronDataIntervalTimetable("0 3 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULTS,
    params={
        **SETTINGS,
        "cut_log": Param("", type="string", description="Folder of the lake's own log, to cut what is not needed."),
        "dry_run": Param(default=False, type="boolean", description="Only tell what `maintain` would do."),
    },
    tags=["offsetlake"],
):
    maintain = LakeJob(
        task_id="maintain",
        command=[
            "maintain",
            "{{ '--log=' ~ params.cut_log if params.cut_log else '' }}",
            "{{ '--dry-run' if params.dry_run else '--format=json' }}",
        ],
    )
    commits_in_part = LakeJob(
        task_id="commits_in_part",
        command=["sql", "SELECT * FROM pending_offsets WHERE commit_id IS NOT NULL", "--format=json"],
    )
    hanging_transactions = LakeJob(
        task_id="hanging_transactions",
        command=["transactions", "--open-longer-than=15m", NOW, "--format=json"],
    )
    maintain >> [commits_in_part, hanging_transactions]
