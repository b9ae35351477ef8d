"""An Airflow operator that runs a command of offsetlake as a process, whose Python environment is separate.

The program is the `offsetlake` on the PATH. It inherits the environment of the Airflow worker: settings in environment
variables, or in the file that `OFFSETLAKE_CONFIG` names, apply to all DAGs. The parameters of a run override them.

A module `offsetlake_defaults` in the DAGs folder can set `DEFAULT_ARGS`, which override the defaults below: owner,
callbacks, retries and timeout of every task.
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

from lake_fleet import WRITER, Lake

if find_spec("offsetlake_defaults"):
    from offsetlake_defaults import DEFAULT_ARGS as OVERRIDES
else:
    OVERRIDES = {}


def defaults(lake: Lake) -> dict[str, Any]:
    """Return the default arguments of all tasks that work on a lake: one task at a time writes to it."""
    # Retries are safe: an interrupted job resumes its plan, and writes nothing twice.
    return {
        "owner": "offsetlake",
        "pool": WRITER,
        "retries": 2,
        "retry_delay": timedelta(minutes=1),
        "execution_timeout": timedelta(hours=2),
        **OVERRIDES,
        **({"pool": lake.own(WRITER)} if lake.name else {}),
        "lake": lake,
    }


def settings(lake: Lake) -> dict[str, Param]:
    """Return the parameters of a run that select the lake and its log; with a file of lakes, those it leaves open."""
    return _SETTINGS if not lake.name else {name: _SETTINGS[name] for name in ("config", "kafka_conn_id")}


_SETTINGS = {
    "lake": Param("", type="string", description="Folder of the lake; empty: from the settings of the jobs."),
    "log": Param("", type="string", description="Folder of the log, if the log is a folder."),
    "bootstrap": Param("", type="string", description="HOST:PORT of a live cluster, if the log is one."),
    "config": Param("", type="string", description="Settings file of the jobs (TOML), as for `--config`."),
    "kafka_config": Param("", type="string", description="Kafka client properties file on the worker."),
    "kafka_conn_id": Param("", type="string", description="Airflow Connection of type kafka to the cluster."),
}

NOW = "--now={{ (dag_run.data_interval_end or dag_run.run_after).isoformat() }}"
"""The time of an evaluation: the end of the data interval, so that late and repeated runs give the same result."""

NOT_RETRIED = (2, 4, 6, 8, 9, 10, 11)
"""Exit codes of errors that a retry does not resolve.

An invalid request (2), the log of another lake (4), an unusable lake (6), a refused change (8), a failed check (9), a
table that another program changed (10), a query that exceeds the memory limit (11).
"""

MAX_SHOWN_ROWS = 5
"""The maximum number of rows in the error of a task."""


def tables(lake: Lake, *names: str) -> list[Asset]:
    """Return the assets of tables of a lake: `offsetlake.TABLE`, with a file of lakes `offsetlake.LAKE.TABLE`."""
    return [Asset(f"offsetlake.{lake.name}.{name}" if lake.name else f"offsetlake.{name}") for name in names]


class LakeJob(BaseOperator):
    """Runs one command of offsetlake.

    The log of the task contains what the command writes to standard error and its answer, of JSON only the number of
    rows. The result of a job is `run_id`, the number of its run, and `versions`, the table versions after it in the
    format of `--versions`.

    Each asset of `outlets` is published with these fields as `extra`:

    | Field     | Description |
    |-----------|-------------|
    | lake      | The name of the lake in the file of lakes, otherwise the parameter of the same name. |
    | run_id    | The run of the job in the table `runs`. |
    | outcome   | `done`, or `nothing new` if the table did not change. |
    | version   | The Delta version of the table after the run. |
    | positions | The log position of the table by log partition; empty for tables of decisions. |

    Args:
        command: The arguments of `offsetlake`, with templates and results of other tasks; empty words are omitted.
        asks_cluster: Whether to add `--bootstrap` with the address of the live cluster, if there is one.
        lake: The lake of a file of lakes that the command works on, or the one that the settings of the worker select.
        finding: If not empty, the task fails if the answer has rows; the error begins with this description of them.
        options: Options of the operator.

    Raises:
        AirflowFailException: The command failed, and a retry does not help. The message has the last line that the
            command wrote, for a check the failed expectations with their groups.
        AirflowException: The command failed, and a retry may help.

    """

    template_fields = ("command",)

    def __init__(
        self, *, command: Sequence[Any], lake: Lake, asks_cluster: bool = False, finding: str = "", **options: Any
    ) -> None:
        super().__init__(multiple_outputs=True, **options)
        self.command, self.lake, self.asks_cluster, self.finding = command, lake, asks_cluster, finding
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Run the command, and publish the assets."""
        words = [word for word in map(str, self.command) if word]
        environment = _environment(context["params"], self.lake)
        if self.asks_cluster and (address := self.lake.bootstrap or environment.get("OFFSETLAKE_BOOTSTRAP")):
            words.append(f"--bootstrap={address}")
        code, rows, last_line = self._run(words, environment)
        if code:
            kind = AirflowFailException if code in NOT_RETRIED else AirflowException
            raise kind(f"offsetlake {words[0]} ended with {code}: {last_line}")
        if self.finding and rows:
            raise AirflowFailException(f"{len(rows)} {self.finding}: {json.dumps(rows[:MAX_SHOWN_ROWS])}")
        if not rows or "versions" not in rows[-1]:
            return None
        run = rows[-1]
        for asset in self.outlets:
            context["outlet_events"][asset].extra = _extra(asset, run, self.lake.name or context["params"]["lake"])
        versions = ",".join(f"{table}={version}" for table, version in run["versions"].items())
        return {"run_id": run["run_id"], "versions": versions}

    def on_kill(self) -> None:
        """Terminate the command; its next run resumes an interrupted job."""
        if self._process is not None:
            self._process.terminate()

    def _run(self, words: list[str], environment: Mapping[str, str]) -> tuple[int, list[dict[str, Any]], str]:
        """Run the command; return its exit code, the rows of its answer, and its last line on standard error."""
        program = shutil.which("offsetlake")
        if program is None:
            raise AirflowFailException(
                "The program `offsetlake` is not on the PATH of the Airflow worker: add the folder of its environment."
            )
        self.log.info("offsetlake %s", " ".join(words))
        last_line = ""
        with tempfile.TemporaryFile("w+", encoding="utf-8") as answer, _interruptible():
            self._process = subprocess.Popen(
                [program, *words], stdout=answer, stderr=subprocess.PIPE, env=environment, text=True, errors="replace"
            )
            try:
                for line in self._process.stderr or ():
                    last_line = line.strip() or last_line
                    self.log.info("%s", line.rstrip())
                code = self._process.wait()
            except BaseException:
                self.on_kill()
                raise
            answer.seek(0)
            text = answer.read()
        if text.startswith("{"):
            rows = [json.loads(line) for line in text.splitlines()]
            self.log.info("offsetlake %s answered with %d %s", words[0], len(rows), "row" if len(rows) == 1 else "rows")
            return code, rows, last_line
        self.log.info("%s", text)
        return code, [], last_line


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt: Airflow's handler would exit at once, and leave the command running."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _environment(params: Mapping[str, Any], lake: Lake) -> dict[str, str]:
    """Return the environment of the worker, overridden by the parameters of the run, with the lake if it has a name.

    Secrets are passed only in the environment, never on a command line or in a log.
    """
    connection = _connection_settings(params["kafka_conn_id"]) if params["kafka_conn_id"] else {}
    names = [name for name in settings(lake) if params[name] and name != "kafka_conn_id"]
    named = connection | {f"OFFSETLAKE_{name.upper()}": params[name] for name in names}
    if lake.name:
        named["OFFSETLAKE_CLUSTER"] = lake.name
    logs = {"OFFSETLAKE_LOG", "OFFSETLAKE_BOOTSTRAP"}
    replaced = logs if logs & named.keys() else set()
    return {name: value for name, value in os.environ.items() if name not in replaced} | named


def _connection_settings(conn_id: str) -> dict[str, str]:
    """Return the settings of a Connection as environment variables.

    The extra fields are Kafka client properties, as in connections of Airflow's Kafka provider; the host is the
    bootstrap server, and login and password are the SASL credentials.
    """
    connection = Connection.get(conn_id)
    settings = {name: str(value) for name, value in connection.extra_dejson.items()}
    if connection.host:
        settings.setdefault(
            "bootstrap.servers", f"{connection.host}:{connection.port}" if connection.port else connection.host
        )
    for name, value in (("sasl.username", connection.login), ("sasl.password", connection.password)):
        if value:
            settings.setdefault(name, value)
    address = settings.pop("bootstrap.servers", None)
    variables = {f"OFFSETLAKE_KAFKA_{name.upper().replace('.', '_')}": value for name, value in settings.items()}
    return variables | ({"OFFSETLAKE_BOOTSTRAP": address} if address else {})


def _extra(asset: Asset, run: Mapping[str, Any], lake: str) -> dict[str, Any]:
    positions = {f"{row['topic']}-{row['partition']}": row["position"] for row in run["positions"] or ()}
    version = run["versions"][asset.name.rpartition(".")[2]]
    kept = {name: run[name] for name in ("run_id", "outcome")}
    return {"lake": lake, **kept, "version": version, "positions": positions}
