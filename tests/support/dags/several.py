"""A script for Airflow's Python: runs DAGs one after the other like `airflow dags test`, and writes their task states.

python several.py FILE RUNS

RUNS is a JSON list; a run has a `dag`, the `params` that differ from the defaults, and its `environment` variables.
"""

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from airflow.dag_processing.dagbag import BundleDagBag

folder = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
bag = BundleDagBag(folder, bundle_path=folder, bundle_name="dags-folder")
defaults = {name: dag.params.dump() for name, dag in bag.dags.items()}
states = []
for number, run in enumerate(json.loads(sys.argv[2]), start=1):
    name = run["dag"]
    os.environ.update(run["environment"])
    day = datetime(2100, 1, number, tzinfo=UTC)
    params = defaults[name] | run["params"]  # all of them, because Airflow would reuse those of the previous run
    dag_run = bag.dags[name].test(logical_date=day, run_conf=params)
    states.append({instance.task_id: instance.state for instance in dag_run.get_task_instances()})
    for variable in run["environment"]:
        del os.environ[variable]
Path(sys.argv[1]).write_text(json.dumps({"states": states}))
