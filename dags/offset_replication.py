"""Translates the offsets of all groups to those at a standby cluster, every 5 minutes.

The standby is the cluster in the Airflow Variable `offsetlake_to`, and its lake the folder in `offsetlake_to_lake`; the
parameters `to` and `to_lake` of a run override them. Without them, nothing is done. Groups that ever had members at the
standby are omitted, so that a group which continues there is never set back.
"""

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, Param, Variable, task

from lake_fleet import LAKES
from lake_job import LakeJob, defaults, settings

TO, TO_LAKE = "offsetlake_to", "offsetlake_to_lake"

for lake in LAKES:
    with DAG(
        lake.own("offset_replication"),
        description="translate the offsets of groups to those at a standby cluster",
        doc_md=__doc__,
        schedule=CronDataIntervalTimetable("*/5 * * * *", timezone="UTC"),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        default_args=defaults(lake),
        params={
            **settings(lake),
            "groups": Param("*", type="string", description="A group, or a shell pattern of groups."),
            "to": Param("", type="string", description="HOST:PORT of the standby cluster."),
            "to_lake": Param("", type="string", description="Folder of the lake of the standby cluster."),
            "to_kafka_config": Param(
                "", type="string", description="Kafka client properties file for it, on the worker."
            ),
            "syncs_at": Param("source", enum=["source", "target"], description="The cluster with the offset syncs."),
        },
        tags=["offsetlake"],
    ):

        @task.short_circuit
        def has_standby(variable: str, params: dict[str, Any]) -> bool:
            """Skip the translation without a standby."""
            return bool(params["to"] or Variable.get(variable, default=""))

        to = f"{{{{ params.to or var.value.get('{lake.own(TO)}', '') }}}}"
        to_lake = f"{{{{ params.to_lake or var.value.get('{lake.own(TO_LAKE)}', '') }}}}"
        translate = LakeJob(
            task_id="translate",
            command=[
                *("translate", "{{ params.groups }}", f"--to={to}", f"--to-lake={to_lake}"),
                "{{ '--to-kafka-config=' ~ params.to_kafka_config if params.to_kafka_config else '' }}",
                *("--syncs-at={{ params.syncs_at }}", "--continuous", "--execute", "--format=json"),
            ],
        )
        has_standby(lake.own(TO)) >> translate
