"""A script for Airflow's Python: imports the DAGs and writes their description to a file as JSON.

python describe.py FILE [FOLDER]
"""

import json
import os
import sys
from pathlib import Path

from airflow.dag_processing.dagbag import BundleDagBag

folder = Path(sys.argv[2] if len(sys.argv) > 2 else os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
bag = BundleDagBag(folder, bundle_path=folder, bundle_name="dags-folder")
dags = {
    name: {
        "schedule": dag.timetable.expression,
        "zone": str(dag.timetable.timezone),
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "params": dag.params.dump(),
        "tasks": {
            task.task_id: {
                "pool": task.pool,
                "pool_slots": task.pool_slots,
                "retries": task.retries,
                "owner": task.owner,
                "callbacks": len(task.on_failure_callback),
                "minutes": task.execution_timeout and task.execution_timeout.total_seconds() / 60,
                "upstream": sorted(task.upstream_task_ids),
                "outlets": [asset.name for asset in task.outlets],
            }
            for task in dag.topological_sort()
        },
    }
    for name, dag in bag.dags.items()
}
Path(sys.argv[1]).write_text(json.dumps({"errors": bag.import_errors, "dags": dags}))
