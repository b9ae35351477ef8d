"""Run by Airflow's Python: DAGs one after the other, as `airflow dags test` runs them; their tasks' states as JSON.

python several.py FILE RUNS

RUNS is a JSON list; a run has a `dag`, the `params` that are not as always, and variables of its `environment`.
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
    params = defaults[name] | run["params"]  # all of them: those of the run before would hold where none is given
    done = bag.dags[name].test(logical_date=day, run_conf=params)
    states.append({instance.task_id: instance.state for instance in done.get_task_instances()})
    for variable in run["environment"]:
        del os.environ[variable]
Path(sys.argv[1]).write_text(json.dumps({"states": states}))
