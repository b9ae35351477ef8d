"""Checks all expectations over the whole history and writes the report, once a day.

`compact` runs first because its result is a consistent set of table versions; it has work only if `offset_lifecycle`
has not run. The data docs (`index.html`) and the report (`report.html`) are written to the folder of the parameter
`docs`; without it, no report is written. The report does not depend on the result of the check.
"""

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, Param, task

from lake_fleet import LAKES
from lake_job import LakeJob, defaults, settings, tables

for lake in LAKES:
    with DAG(
        lake.own("offset_audit"),
        description="check everything, write the report",
        doc_md=__doc__,
        schedule=CronDataIntervalTimetable("5 4 * * *", timezone="UTC"),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        default_args=defaults(lake),
        params={
            **settings(lake),
            "docs": Param("", type="string", description="Folder for the data docs and the report; empty: none."),
        },
        tags=["offsetlake"],
    ):
        compact = LakeJob(
            task_id="compact",
            command=["compact", "--format=json"],
            outlets=tables(lake, "offsets", "pending_offsets", "groups", "group_members", "share_partitions"),
        )
        check = LakeJob(
            task_id="check",
            command=[
                *("check", "--format=json", "--full", "--versions", compact.output["versions"]),
                "{{ '--docs=' ~ params.docs if params.docs else '' }}",
            ],
        )
        report = LakeJob(task_id="report", command=["report", "--to={{ params.docs }}/report.html"])

        @task.short_circuit
        def has_folder(params: dict[str, Any]) -> bool:
            """Skip the report without a folder."""
            return bool(params["docs"])

        compact >> check
        compact >> has_folder() >> report
