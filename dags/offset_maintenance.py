"""Maintains the lake once a day: compacts small files, vacuums unreferenced ones, and finds what needs a repair.

`maintain` cuts a log only if the parameter `cut_log` names it, which must not be the data folder of a broker. It fails
while an interrupted job has not been resumed, and is retried. The tasks `incomplete_commits` and `hanging_transactions`
fail if there are any, and their errors list the first of them; no other task depends on them. `offsetlake repair`
repairs a log that offsetlake owns. A broker repairs its own log, and aborts transactions whose producer is gone.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from lake_fleet import LAKES
from lake_job import NOW, LakeJob, defaults, settings

for lake in LAKES:
    with DAG(
        lake.own("offset_maintenance"),
        description="maintain; find what needs a repair",
        doc_md=__doc__,
        schedule=CronDataIntervalTimetable("5 3 * * *", timezone="UTC"),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        default_args=defaults(lake),
        params={
            **settings(lake),
            "cut_log": Param(
                "",
                type="string",
                description="Folder of a log that offsetlake owns, to delete segments that are no longer needed.",
            ),
            "dry_run": Param(default=False, type="boolean", description="Only print what `maintain` would do."),
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
        incomplete_commits = LakeJob(
            task_id="incomplete_commits",
            command=["sql", "SELECT * FROM pending_offsets WHERE commit_id IS NOT NULL", "--format=json"],
            finding="offsets of incomplete commits; `offsetlake repair` writes their last complete values again",
        )
        hanging_transactions = LakeJob(
            task_id="hanging_transactions",
            command=["transactions", "--open-longer-than=15m", NOW, "--format=json"],
            finding="transactions open for 15 minutes or longer, which block the offsets in them",
        )
        maintain >> [incomplete_commits, hanging_transactions]
