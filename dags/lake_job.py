"""The jobs as Airflow runs them: `offsetlake`, a process of the jobs' own environment, of which this one knows nothing.

The program is the `offsetlake` of the PATH, and runs with the environment of Airflow's worker: settings named there, or
in the file that `OFFSETLAKE_CONFIG` names, hold for all DAGs. The parameters of a run win over them.
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
from typing import Any

from airflow.sdk import Asset, BaseOperator, Context, Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException

WRITER = "offsetlake_writer"
"""The pool of one slot, for whatever writes to the lake. The lake's own lock holds too, where there is no pool."""

# A job that was killed goes on with its plan when it is run again, and writes nothing twice.
DEFAULTS = {"pool": WRITER, "retries": 2, "retry_delay": timedelta(minutes=1)}

SETTINGS = {
    "lake": Param("", type="string", description="Folder of the lake; empty: as the jobs' own settings say."),
    "log": Param("", type="string", description="Folder of the log, where it is one."),
    "bootstrap": Param("", type="string", description="HOST:PORT of a live cluster, where the log is one."),
    "config": Param("", type="string", description="Settings of the jobs in TOML, as `--config` names them."),
}

NOW = "--now={{ (dag_run.data_interval_end or dag_run.run_after).isoformat() }}"
"""The instant a run judges for: the end of its interval, the same however late it runs and however often."""

TRIED_IN_VAIN = (2, 4, 9)
"""Exit codes that another try does not change: a request that makes no sense, another log, a gate that failed."""

_TABLE = "offsetlake."


def tables(*names: str) -> list[Asset]:
    """Name tables of the lake as assets."""
    return [Asset(f"{_TABLE}{name}") for name in names]


class LakeJob(BaseOperator):
    """Runs one command to its end.

    `command` is what stands behind `offsetlake`: templates and what other tasks gave are filled in, and a word that
    comes out empty is left out. What the command says and answers goes into the task's log. Of a job it gives `run_id`,
    the number of its newest run, and `versions`, what the tables are at behind it, as `--versions` takes it.

    An asset of `outlets` is published with what it holds now, as `extra`:

    | field     | is |
    |-----------|----|
    | lake      | the parameter of that name |
    | run_id    | the run of the job, as table `runs` has it |
    | outcome   | done, or nothing new: the table is as it was |
    | version   | Delta version of the table as the run left it |
    | positions | by log partition, up to where in the log the table reaches; empty for tables of decisions |

    Raises AirflowFailException where another try would be in vain, AirflowException where it may help; each says what
    the command said last: of a gate which rule does not hold, of which groups.
    """

    template_fields = ("command",)

    def __init__(self, *, command: Sequence[Any], **options: Any) -> None:
        super().__init__(multiple_outputs=True, **options)
        self.command = command
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Run the command, publish the assets."""
        words = [word for word in map(str, self.command) if word]
        code, rows, complaint = self._run(words, _environment(context["params"]))
        if code:
            kind = AirflowFailException if code in TRIED_IN_VAIN else AirflowException
            raise kind(f"offsetlake {words[0]} ended with {code}: {complaint}")
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
            lines = answer.read().splitlines()
        for line in lines:
            self.log.info("%s", line)
        return code, [json.loads(line) for line in lines if line.startswith("{")], said


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise: Airflow has it end this process at once, and the command would live on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _environment(params: Mapping[str, Any]) -> dict[str, str]:
    """Give the worker's environment with the settings that the run's parameters name."""
    named = {f"OFFSETLAKE_{name.upper()}": params[name] for name in SETTINGS if params[name]}
    logs = {"OFFSETLAKE_LOG", "OFFSETLAKE_BOOTSTRAP"}
    replaced = logs if logs & named.keys() else set()
    return {name: value for name, value in os.environ.items() if name not in replaced} | named


def _held(asset: Asset, run: Mapping[str, Any], lake: str) -> dict[str, Any]:
    positions = {f"{at['topic']}-{at['partition']}": at["position"] for at in run["positions"] or ()}
    version = run["versions"][asset.name.removeprefix(_TABLE)]
    kept = {name: run[name] for name in ("run_id", "outcome")}
    return {"lake": lake, **kept, "version": version, "positions": positions}
