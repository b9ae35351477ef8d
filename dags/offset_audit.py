"""Holds the lake to all its suites, once a day: what no gate looks at every ten minutes, too.

`compact` comes first, because it says at which versions the tables belong together; it has something to do only where
the lifecycle has not run. Data docs go to the folder that the parameter `docs` names.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from lake_job import DEFAULTS, SETTINGS, LakeJob, tables

with DAG(
    "offset_audit",
    description="all suites",
    doc_md=__doc__,
    schedule=CronDataIntervalTimetable("0 4 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULTS,
    params={**SETTINGS, "docs": Param("", type="string", description="Folder for the data docs; empty: none.")},
    tags=["offsetlake"],
):
    compact = LakeJob(
        task_id="compact",
        command=["compact", "--format=json"],
        outlets=tables("offsets", "pending_offsets", "groups", "group_members"),
    )
    check = LakeJob(
        task_id="check",
        command=[
            *("check", "--format=json", "--versions", compact.output["versions"]),
            "{{ '--docs=' ~ params.docs if params.docs else '' }}",
        ],
    )
    compact >> check
