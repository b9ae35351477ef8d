"""Holds the lake to all its suites and writes the report, once a day: what no gate looks at every ten minutes, too.

`compact` comes first, because it says at which versions the tables belong together; it has something to do only where
the lifecycle has not run. Data docs, `index.html`, and the report, `report.html`, go to the folder that the parameter
`docs` names; without one there is no report. The report is written whatever the suites find.
"""

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, Param, task

from lake_job import DEFAULTS, SETTINGS, LakeJob, tables

with DAG(
    "offset_audit",
    description="all suites, the report",
    doc_md=__doc__,
    schedule=CronDataIntervalTimetable("5 4 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULTS,
    params={**SETTINGS, "docs": Param("", type="string", description="Folder for data docs and report; empty: none.")},
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
            *("check", "--format=json", "--full", "--versions", compact.output["versions"]),
            "{{ '--docs=' ~ params.docs if params.docs else '' }}",
        ],
    )
    report = LakeJob(task_id="report", command=["report", "--to={{ params.docs }}/report.html"])

    @task.short_circuit
    def has_folder(params: dict[str, Any]) -> bool:
        """Write no report where nobody says where to."""
        return bool(params["docs"])

    compact >> check
    compact >> has_folder() >> report
