"""The jobs as Airflow runs them: `offsetlake`, a process of the jobs' own environment, of which this one knows nothing.

The program is the `offsetlake` of the PATH, and runs with the environment of Airflow's worker: settings named there, or
in the file that `OFFSETLAKE_CONFIG` names, hold for all DAGs. The parameters of a run win over them.

The module `offsetlake_defaults`, where the folder of the DAGs has one, sets `DEFAULT_ARGS`, which win over those below:
the owner, callbacks, retries and the timeout of every task.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from airflow.sdk import Asset, BaseOperator, Connection, Context, Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException

WRITER = "offsetlake_writer"
"""The pool of one slot, for whatever writes to the lake. The lake's own lock holds too, where there is no pool."""

if find_spec("offsetlake_defaults"):
    from offsetlake_defaults import DEFAULT_ARGS as OWN
else:
    OWN = {}

# A job that was killed goes on with its plan when it is run again, and writes nothing twice.
DEFAULTS = {
    "owner": "offsetlake",
    "pool": WRITER,
    "retries": 2,
    "retry_delay": timedelta(minutes=1),
    "execution_timeout": timedelta(hours=2),
    **OWN,
}

SETTINGS = {
    "lake": Param("", type="string", description="Folder of the lake; empty: as the jobs' own settings say."),
    "log": Param("", type="string", description="Folder of the log, where it is one."),
    "bootstrap": Param("", type="string", description="HOST:PORT of a live cluster, where the log is one."),
    "config": Param("", type="string", description="Settings of the jobs in TOML, as `--config` names them."),
    "kafka_config": Param("", type="string", description="File of Kafka client properties on the worker."),
    "kafka_conn_id": Param("", type="string", description="Airflow Connection to the cluster, of type kafka."),
}

NOW = "--now={{ (dag_run.data_interval_end or dag_run.run_after).isoformat() }}"
"""The instant a run judges for: the end of its interval, the same however late it runs and however often."""

NOT_RETRIED = (2, 4, 6, 8, 9, 10, 11)
"""Exit codes of errors that a retry does not change.

An invalid request (2), a log of another lake (4), an unusable lake (6), a refused change (8), a gate that failed (9),
a table that another program changed (10), a query that needs more memory than it may have (11).
"""

MAX_SHOWN = 5
"""Rows that the error of a task names."""

_TABLE = "offsetlake."


def tables(*names: str) -> list[Asset]:
    """Name tables of the lake as assets."""
    return [Asset(f"{_TABLE}{name}") for name in names]


class LakeJob(BaseOperator):
    """Runs one command to its end.

    `command` is what stands behind `offsetlake`: templates and what other tasks gave are filled in, and a word that
    comes out empty is left out. With `asks_cluster` it is also given the address of the live cluster, if there is one.
    The task's log has what the command says, and an answer for people; of rows in JSON only how many there are.
    With `finding`, each row of the answer is one, and the task fails if there are any. Of a job it gives `run_id`,
    the number of its newest run, and `versions`, what the tables are at behind it, as `--versions` takes it.

    An asset of `outlets` is published with what it holds now, as `extra`:

    | field     | is |
    |-----------|----|
    | lake      | the parameter of that name |
    | run_id    | the run of the job, as table `runs` has it |
    | outcome   | done, or nothing new: the table is as it was |
    | version   | Delta version of the table as the run left it |
    | positions | by log partition, up to where in the log the table reaches; empty for tables of decisions |

    Raises AirflowFailException where a retry would not help, AirflowException where it may; each has the last line that
    the command wrote: of a gate the rule that does not hold, and for which groups.
    """

    template_fields = ("command",)

    def __init__(
        self, *, command: Sequence[Any], asks_cluster: bool = False, finding: str = "", **options: Any
    ) -> None:
        super().__init__(multiple_outputs=True, **options)
        self.command, self.asks_cluster, self.finding = command, asks_cluster, finding
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Run the command, publish the assets."""
        words = [word for word in map(str, self.command) if word]
        environment = _environment(context["params"])
        if self.asks_cluster and (address := environment.get("OFFSETLAKE_BOOTSTRAP")):
            words.append(f"--bootstrap={address}")
        code, rows, complaint = self._run(words, environment)
        if code:
            kind = AirflowFailException if code in NOT_RETRIED else AirflowException
            raise kind(f"offsetlake {words[0]} ended with {code}: {complaint}")
        if self.finding and rows:
            raise AirflowFailException(f"{len(rows)} {self.finding}: {json.dumps(rows[:MAX_SHOWN])}")
        if not rows or "versions" not in rows[-1]:
            return None
        run = rows[-1]
        for asset in self.outlets:
            context["outlet_events"][asset].extra = _held(asset, run, context["params"]["lake"])
        versions = ",".join(f"{table}={version}" for table, version in run["versions"].items())
        return {"run_id": run["run_id"], "versions": versions}

    def on_kill(self) -> None:
        """End the command; what it leaves half done, its next run finishes."""
        if self._process is not None:
            self._process.terminate()

    def _run(self, words: list[str], environment: Mapping[str, str]) -> tuple[int, list[dict[str, Any]], str]:
        """Run it; gives its exit code, the rows it answered with, and the last line it said."""
        program = shutil.which("offsetlake")
        if program is None:
            raise AirflowFailException("no `offsetlake` on the PATH of Airflow: put the jobs' environment there")
        self.log.info("offsetlake %s", " ".join(words))
        said = ""
        with tempfile.TemporaryFile("w+", encoding="utf-8") as answer, _interruptible():
            self._process = subprocess.Popen(
                [program, *words], stdout=answer, stderr=subprocess.PIPE, env=environment, text=True, errors="replace"
            )
            try:
                for line in self._process.stderr or ():
                    said = line.strip() or said
                    self.log.info("%s", line.rstrip())
                code = self._process.wait()
            except BaseException:
                self.on_kill()
                raise
            answer.seek(0)
            text = answer.read()
        if text.startswith("{"):
            rows = [json.loads(line) for line in text.splitlines()]
            self.log.info("offsetlake %s answered with %d rows", words[0], len(rows))
            return code, rows, said
        self.log.info("%s", text)
        return code, [], said


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise: Airflow has it end this process at once, and the command would live on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _environment(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the worker's environment with the settings that the run's parameters name.

    Secrets reach a job by its environment alone: no command line and no log has them.
    """
    connection = _of_connection(params["kafka_conn_id"]) if params["kafka_conn_id"] else {}
    names = [name for name in SETTINGS if params[name] and name != "kafka_conn_id"]
    named = connection | {f"OFFSETLAKE_{name.upper()}": params[name] for name in names}
    logs = {"OFFSETLAKE_LOG", "OFFSETLAKE_BOOTSTRAP"}
    replaced = logs if logs & named.keys() else set()
    return {name: value for name, value in os.environ.items() if name not in replaced} | named


def _of_connection(conn_id: str) -> dict[str, str]:
    """Return what a Connection says about the cluster, as variables of the environment.

    The extra fields are Kafka's own settings, as in connections of Airflow's Kafka provider; a host is the address, a
    login and a password are those of SASL.
    """
    known = Connection.get(conn_id)
    settings = {name: str(value) for name, value in known.extra_dejson.items()}
    if known.host:
        settings.setdefault("bootstrap.servers", f"{known.host}:{known.port}" if known.port else known.host)
    for name, value in (("sasl.username", known.login), ("sasl.password", known.password)):
        if value:
            settings.setdefault(name, value)
    address = settings.pop("bootstrap.servers", None)
    variables = {f"OFFSETLAKE_KAFKA_{name.upper().replace('.', '_')}": value for name, value in settings.items()}
    return variables | ({"OFFSETLAKE_BOOTSTRAP": address} if address else {})


def _held(asset: Asset, run: Mapping[str, Any], lake: str) -> dict[str, Any]:
    positions = {f"{at['topic']}-{at['partition']}": at["position"] for at in run["positions"] or ()}
    version = run["versions"][asset.name.removeprefix(_TABLE)]
    kept = {name: run[name] for name in ("run_id", "outcome")}
    return {"lake": lake, **kept, "version": version, "positions": positions}
