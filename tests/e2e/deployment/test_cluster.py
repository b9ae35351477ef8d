"""The jobs on a real Spark cluster and on Spark Connect, from the built wheel alone: the tables of a run elsewhere."""

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from offsetlake.lake.definitions import TABLES
from offsetlake.lake.files import active_files
from offsetlake.lake.lake import Lake
from support.e2e.cluster import WORKERS, Cluster, environment
from support.e2e.connect_server import connect_server
from support.e2e.in_process import InProcess
from support.e2e.lakes import LATER, cycle, plan_expiry, rows, state, upkeep
from support.e2e.wheel import build_wheel, make_environment
from support.e2e.wide_logs import write_wide_log
from support.lakes import new_lake
from support.oracle.random_logs import random_log

pytestmark = pytest.mark.jvm

ROOT = Path(__file__).parents[3]
REAL_LOG = ROOT / "tests" / "fixtures" / "real-log"

Submit = Callable[..., "subprocess.CompletedProcess[str]"]

# Settings of the project's own that a submission sets otherwise: of the session, and of the context beneath it.
GIVEN = {"spark.sql.session.timeZone": "Europe/Berlin", "spark.ui.showConsoleProgress": "true"}

# Tells where driver and executors have the program from; the barrier lets no executor answer for another.
PROBE = """
import json, os, sys
from pathlib import Path

import offsetlake
from pyspark import BarrierTaskContext
from offsetlake.pipeline.spark import build_session

def answer(_rows):
    import offsetlake
    BarrierTaskContext.get().barrier()
    yield {"folder": os.getcwd(), "program": offsetlake.__file__, "python": sys.executable}

spark = build_session("probe")
executors = spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(answer).collect()
driver = {"program": offsetlake.__file__, "python": sys.executable}
settings = {**dict(spark.sparkContext.getConf().getAll()), **spark.conf.getAll}
Path(sys.argv[1]).write_text(json.dumps({"executors": executors, "driver": driver, "settings": settings}))
"""

# Continues PROBE: runs the jobs with tasks that all fail in their first attempt, once they have written their files.
FAILING = """
from pyspark import TaskContext

from offsetlake.errors import LakeUnusable
from offsetlake.lake.lake import Lake
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.compact import division
from offsetlake.pipeline.compact import job as compact
from offsetlake.pipeline.expire import job as expire
from offsetlake.pipeline.ingest import job as ingest

def failing_once(distribute):
    def distribute_failing(spark, work, items):
        def attempt(item):
            result = work(item)
            if TaskContext.get().attemptNumber() == 0:
                raise LakeUnusable("the first attempt fails")
            return result
        return distribute(spark, attempt, items)
    return distribute_failing

for job in (ingest, compact, division, expire):
    job.distribute = failing_once(job.distribute)
division.TASK_ROWS = division.MAX_TASK_ROWS = 20  # each log partition is divided by ranges of groups
division.MIN_RANGE_ROWS = 5
expire.MAX_LOCAL_OFFSETS = 0
lake = Lake.create(Path(sys.argv[2]))
ingest.ingest(lambda: spark, lake, LogAddress(folder=Path(sys.argv[3])), print)
compact.compact(lambda: spark, lake, print)
expire.expire(lambda: spark, lake, RetentionPolicy(7 * 86_400_000), int(sys.argv[4]), print)
"""

# Prints how many tasks run at a time, and the length of the message of an error that a task raised.
FAILING_ON_CONNECT = """
from offsetlake.errors import LakeBusy
from offsetlake.pipeline.parallel import concurrent_tasks, distribute
from offsetlake.pipeline.spark import build_session

def fail(_item):
    raise LakeBusy("busy " * 4_000)

spark = build_session("failing")
try:
    distribute(spark, fail, [1])
except LakeBusy as error:
    print(concurrent_tasks(spark), len(str(error)))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with all that the program needs, and not the program: the checkout's link is not followed."""
    folder = tmp_path_factory.mktemp("python")
    make_environment(folder)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, under a name by which Spark's executors take it."""
    wheel = build_wheel(tmp_path_factory.mktemp("wheel"))
    return wheel.rename(wheel.with_suffix(".zip"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, python: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), python) as running:
        yield running


@pytest.fixture(scope="module")
def submitted(cluster: Cluster, program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the answer of PROBE, and with the log and the lake of FAILING, both in one application."""
    folder = tmp_path_factory.mktemp("submitted")
    random_log(random.Random(22), 500, groups=10, log_partitions=3).write(folder / "log")
    (folder / "job.py").write_text(PROBE + FAILING)
    arguments = (folder / "answer.json", folder / "lake", folder / "log", str(LATER))
    done(cluster.submit(folder / "job.py", *arguments, py_files=program, conf=GIVEN))
    return folder


@pytest.fixture(scope="module")
def probed(submitted: Path) -> dict[str, Any]:
    """The answer of PROBE."""
    answer: dict[str, Any] = json.loads((submitted / "answer.json").read_text())
    return answer


@pytest.fixture
def submit(cluster: Cluster, program: Path, tmp_path: Path) -> Submit:
    """Runs a job on the cluster; what its executors did goes to event logs below tmp_path."""
    recorded = recording(tmp_path / "events")

    def run(job: Path, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        return cluster.submit(job, *arguments, py_files=program, conf=recorded)

    return run


def recording(events: Path) -> dict[str, str]:
    """Make a folder for event logs, and return the Spark properties that write them there."""
    events.mkdir()
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def executors_by_stage(events: Path) -> list[set[str]]:
    """The executors that ran the work items of each job of the one application whose event log this is."""
    (log,) = events.iterdir()
    executors: dict[int, set[str]] = {}
    stages = []
    for event in map(json.loads, log.read_text(encoding="utf-8").splitlines()):
        if event["Event"] == "SparkListenerTaskEnd":
            executors.setdefault(event["Stage ID"], set()).add(event["Task Info"]["Executor ID"])
        elif event["Event"] == "SparkListenerStageCompleted" and "MapInArrow" in json.dumps(event["Stage Info"]):
            stages.append(event["Stage Info"]["Stage ID"])
    return [executors[stage] for stage in stages]


def done(finished: "subprocess.CompletedProcess[str]") -> None:
    assert finished.returncode == 0, finished.stdout[-5000:] + finished.stderr[-5000:]


@pytest.mark.long
def test_executors_have_the_program_from_the_wheel(probed: dict[str, Any], python: Path, program: Path) -> None:
    without = subprocess.run([python, "-c", "import offsetlake.errors"], capture_output=True, check=False, cwd="/")
    assert b"No module named 'offsetlake" in without.stderr
    assert len({executor["folder"] for executor in probed["executors"]}) == WORKERS
    for process in (*probed["executors"], probed["driver"]):
        assert Path(process["program"]).parts[-3:] == (program.name, "offsetlake", "__init__.py")
        assert process["python"] == str(python)


@pytest.mark.long
def test_settings_of_spark_submit_take_precedence(probed: dict[str, Any]) -> None:
    assert probed["settings"]["spark.ui.enabled"] == "false"
    assert {name: probed["settings"][name] for name in GIVEN} == GIVEN


@pytest.mark.long
def test_executors_of_a_cluster_do_not_connect_to_a_loopback_address_by_default(probed: dict[str, Any]) -> None:
    assert "spark.driver.bindAddress" not in probed["settings"]


@pytest.mark.long
def test_jobs_run_on_a_spark_cluster(submit: Submit, tmp_path: Path) -> None:
    log, lake = tmp_path / "log", tmp_path / "cluster"
    random_log(random.Random(21), 1_000, groups=40, log_partitions=5).write(log)
    write_wide_log(log, ["wide-0", "wide-1"], 100)
    for folder in REAL_LOG.iterdir():  # beside the others: the numbers of log partitions are anybody's choice
        topic, _, number = folder.name.rpartition("-")
        shutil.copytree(folder, log / f"{topic}-{int(number) + 100}")
    done(submit(ROOT / "jobs" / "run.py", "--lake", lake, "--log", log, "--now", str(LATER)))
    ingested, compacted = executors_by_stage(tmp_path / "events")
    assert len(ingested) == len(compacted) == WORKERS
    local = new_lake(tmp_path / "local")
    cycle(InProcess(), local, log)
    plan_expiry(InProcess(), local)
    assert state(Lake.open(lake)) == state(local)
    empty = ("alterations", "log_ends", "history_cuts", "share_partitions")  # the share groups of the log are deleted
    assert all(local.count(table) for table in TABLES if table not in empty)


@pytest.mark.long
def test_retried_tasks_leave_correct_tables(submitted: Path, tmp_path: Path) -> None:
    retried, expected = Lake.open(submitted / "lake"), new_lake(tmp_path / "expected")
    cycle(InProcess(), expected, submitted / "log")
    plan_expiry(InProcess(), expected)
    assert state(retried) == state(expected)
    assert rows(retried, "offsets")
    assert unreferenced_files(retried)
    upkeep(retried)
    assert not unreferenced_files(retried)
    assert state(retried) == state(expected)


def unreferenced_files(lake: Lake) -> set[Path]:
    """The data files that no table names."""
    named = {lake.table_location(table).path / file["path"] for table in TABLES for file in active_files(lake, table)}
    return {*lake.location.path.glob("*/*.parquet")} - named


@pytest.mark.long
def test_failed_job_fails_the_submission(submit: Submit, tmp_path: Path) -> None:
    finished = submit(ROOT / "jobs" / "run.py", "--lake", tmp_path / "lake", "--log", tmp_path / "nowhere")
    assert finished.returncode != 0
    assert (
        f"error: There is no folder {tmp_path / 'nowhere'}" in finished.stdout
    )  # spark-submit prints all of a driver's there
    assert not (tmp_path / "lake").exists()


@pytest.mark.long
def test_jobs_run_on_spark_connect(python: Path, program: Path, tmp_path: Path) -> None:
    """The client runs from the wheel, which the server's tasks do not have unless the client sends it."""
    random_log(random.Random(23), 1_000, groups=20, log_partitions=3).write(tmp_path / "log")
    (tmp_path / "failing.py").write_text(FAILING_ON_CONNECT)
    options = ["--lake", tmp_path / "lake", "--log", tmp_path / "log", "--now", str(LATER)]

    def connected(variable: str, remote: str, *command: str | Path) -> str:
        variables = environment(tmp_path, python) | {variable: remote, "PYTHONPATH": str(program)}
        finished = subprocess.run(
            [python, *command], env=variables, cwd=tmp_path, capture_output=True, check=False, encoding="utf-8"
        )
        done(finished)
        return finished.stdout

    with connect_server(tmp_path, python) as remote:
        connected("OFFSETLAKE_SPARK_REMOTE", remote, ROOT / "jobs" / "run.py", *options)
        assert connected("SPARK_REMOTE", remote, tmp_path / "failing.py").split() == ["2", str(len("busy " * 4_000))]
    local = new_lake(tmp_path / "local")
    cycle(InProcess(), local, tmp_path / "log")
    plan_expiry(InProcess(), local)
    assert state(Lake.open(tmp_path / "lake")) == state(local)
    assert rows(local, "offsets")
