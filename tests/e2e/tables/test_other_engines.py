"""Spark writes to our tables: the next cycle gives the tables of an untouched lake, or refuses and names the commit.

What it refuses `rebuild` makes good for the tables of latest state, and RESTORE for history. In a folder each case is
run on one of the state tables and one of the history tables, in turn; in S3, where a statement takes longer, every
third one is. Spark writes to a store by its own commits, which have no condition: these tests have only one writer at
a time.
"""

import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from offsetlake import open_snapshot
from offsetlake.errors import LakeUnusable, TableChanged
from offsetlake.lake.foreign import guard
from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import FinishedRun
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.compact.job import compact
from offsetlake.pipeline.compact.rebuild import rebuild
from offsetlake.pipeline.ingest.job import ingest
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, grow, state
from support.lakes import new_lake
from support.object_store.server import s3a_settings, upload
from support.oracle.random_logs import RandomLog, random_log

STATE = ("offsets", "pending_offsets", "groups", "group_members")
HISTORY = ("offset_commits", "group_records")
QUARTER, HALF, WHOLE = 0.25, 0.5, 0.99

ADAPTED, REFUSED, HARMLESS = "adapted", "refused", "harmless"


@dataclass(frozen=True)
class Case:
    """Statements over the table `{t}`, what the next job makes of them, and the operation it names.

    `history` is the same for history; empty where Spark refuses the statements itself: history is append-only.
    """

    name: str
    statements: tuple[str, ...]
    outcome: str
    operation: str = ""
    history: str = ""

    def __str__(self) -> str:
        return self.name


def _with(properties: str, *statements: str) -> tuple[str, ...]:
    return f"ALTER TABLE {{t}} SET TBLPROPERTIES ({properties})", *statements


_VECTORS = "'delta.enableDeletionVectors' = 'true'"
_MAPPED = "'delta.columnMapping.mode' = 'name'"
_DELETE = "DELETE FROM {t} WHERE group_id <= '{group}'"

_OPTIMIZE, _VACUUM, _PURGE = "OPTIMIZE {t}", "VACUUM {t} RETAIN 0 HOURS", "REORG TABLE {t} APPLY (PURGE)"
_CLUSTER = "ALTER TABLE {t} CLUSTER BY (group_id)"
_ADD, _RENAME = "ALTER TABLE {t} ADD COLUMNS (theirs INT)", "ALTER TABLE {t} RENAME COLUMN "
_MERGE = "MERGE INTO {t} USING (SELECT '{group}' AS g) ON group_id = g WHEN MATCHED THEN DELETE"
_BACK = "RESTORE TABLE {t} TO VERSION AS OF {before}"
_SET = "SET TBLPROPERTIES"

CASES = (
    Case("optimize", (_OPTIMIZE,), ADAPTED, "OPTIMIZE", ADAPTED),
    Case("zorder", ("OPTIMIZE {t} ZORDER BY (log_partition)",), ADAPTED, "OPTIMIZE", ADAPTED),
    Case("optimize, vacuum", (_OPTIMIZE, _VACUUM), ADAPTED, "OPTIMIZE", ADAPTED),
    Case("optimize, vectors on", _with(_VECTORS, _OPTIMIZE, _PURGE), ADAPTED, "OPTIMIZE", ADAPTED),
    Case("optimize, mapped columns", _with(_MAPPED, _OPTIMIZE), ADAPTED, "OPTIMIZE", ADAPTED),
    Case("optimize, delete, restore", (_OPTIMIZE, _DELETE, _BACK), ADAPTED, "OPTIMIZE"),
    Case("delete", (_DELETE,), REFUSED, "DELETE"),
    Case("delete, optimize", (_DELETE, _OPTIMIZE), REFUSED, "DELETE"),
    Case("delete, vectors", _with(_VECTORS, _DELETE), REFUSED, "DELETE"),
    Case("delete, vectors, purge", _with(_VECTORS, _DELETE, _PURGE), REFUSED, "DELETE"),
    Case("delete, restore", (_DELETE, _BACK), HARMLESS),
    Case("restore", ("RESTORE TABLE {t} TO VERSION AS OF 1",), REFUSED, "RESTORE", REFUSED),
    Case("cluster by", (_CLUSTER, "OPTIMIZE {t} FULL"), REFUSED, "CLUSTER BY", REFUSED),
    Case("row tracking", _with("'delta.enableRowTracking' = 'true'"), REFUSED, _SET, REFUSED),
    Case("in-commit timestamps", _with("'delta.enableInCommitTimestamps' = 'true'"), REFUSED, _SET, REFUSED),
    Case("add columns", (_ADD,), HARMLESS, "", HARMLESS),
    Case("rename theirs", _with(_MAPPED, _ADD, _RENAME + "theirs TO x"), HARMLESS, "", HARMLESS),
    Case("rename ours", _with(_MAPPED, _RENAME + "group_id TO g"), REFUSED, "RENAME COLUMN", REFUSED),
    Case("v2 checkpoints", _with("'delta.checkpointPolicy' = 'v2'", _OPTIMIZE), ADAPTED, "OPTIMIZE", ADAPTED),
    Case("vacuum", (_VACUUM,), HARMLESS, "", HARMLESS),
    Case("update", ("UPDATE {t} SET group_id = 'theirs' WHERE group_id = '{group}'",), REFUSED, "UPDATE"),
    Case("merge", (_MERGE,), REFUSED, "MERGE"),
    Case("truncate", ("TRUNCATE TABLE {t}",), REFUSED, "TRUNCATE"),
    Case("insert overwrite", ("INSERT OVERWRITE {t} SELECT * FROM {t} LIMIT 1",), REFUSED, "WRITE"),
    Case("insert", ("INSERT INTO {t} SELECT * FROM {t} LIMIT 1",), REFUSED, "WRITE", REFUSED),
)  # fmt: skip

FOLDER, S3 = "folder", "s3"


def matrix(tables: tuple[str, ...], first: int) -> list[tuple[Case, str, str]]:
    """Return every case for one of the tables, in turn, in a folder, and every third case for another table in S3."""
    in_turn = [
        (case, tables[number % len(tables)], tables[number % len(tables) - 1]) for number, case in enumerate(CASES)
    ]
    return [(case, table, FOLDER) for case, table, _ in in_turn] + [
        (case, other, S3) for case, _, other in in_turn[first::3]
    ]


@dataclass(frozen=True)
class Made:
    """A log, and lakes that read half of it and all of it, which nobody else has written to."""

    folder: Path
    expected: dict[str, Any]

    def log(self, part: float) -> Path:
        return self.folder / f"log-{part}"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("other-engines")
    whole = random_log(random.Random(31), 900, groups=20, log_partitions=4, commit_ids=(7,))
    found = Made(folder, {})
    for part in (QUARTER, HALF, WHOLE):
        grow(found.log(part), RandomLog(whole.world, whole.plans[: int(len(whole.plans) * part)]))
    lake = new_lake(folder / "lake")
    cycle(InProcess(), lake, found.log(QUARTER))
    cycle(InProcess(), lake, found.log(HALF))
    assert all(lake.count(table) for table in (*STATE, *HISTORY)), "a table without rows would prove nothing"
    untouched = Lake(shutil.copytree(folder / "lake", folder / "untouched"))
    cycle(InProcess(), untouched, found.log(WHOLE))
    found.expected.update(state(untouched))
    return found


@pytest.fixture
def lake(made: Made, place: str, request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A lake that has read half of the log, in a folder or in S3."""
    source = made.folder / "lake"
    if place == FOLDER:
        return Lake.open(Path(shutil.copytree(source, tmp_path / "lake")))
    uri = f"s3://{request.getfixturevalue('bucket')}/lake"
    upload(source, uri)
    return Lake.open(uri)


@pytest.fixture
def sql(spark: SparkSession, place: str, request: pytest.FixtureRequest) -> Iterator[Callable[..., None]]:
    """Runs statements on a table of a lake, as somebody who knows nothing of it."""
    settings = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.constraints.allowUnenforcedNotNull.enabled": "true",  # of columns in group_members
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # of VACUUM: 10,000 tasks otherwise
    }
    if place == S3:
        settings |= s3a_settings(request.getfixturevalue("s3").endpoint)
    for name, value in settings.items():
        spark.conf.set(name, value)

    def run(lake: Lake, table: str, *statements: str) -> None:
        before = lake.versions(table)[table]
        for statement in statements:
            named = {"t": f"delta.`{lake.table_location(table).spark_uri}`", "before": before}
            if "{group}" in statement:
                named["group"] = lake.query(f"SELECT min(group_id) AS g FROM {table}", table)["g"][0].as_py()
            spark.sql(statement.format(**named))

    yield run
    for name in settings:
        spark.conf.unset(name)


def go_on(made: Made, lake: Lake) -> list[str]:
    """One more cycle, of what came since; gives what it said."""
    said: list[str] = []
    address = LogAddress(folder=made.log(WHOLE))
    ingest(InProcess, lake, address, said.append)  # type: ignore[arg-type]
    compact(InProcess, lake, said.append)  # type: ignore[arg-type]
    return said


def refused(made: Made, lake: Lake) -> str:
    """See that jobs and readers refuse the lake; gives the sentence."""
    with pytest.raises(TableChanged) as of_job:
        go_on(made, lake)
    return str(of_job.value)


def rebuilt(lake: Lake, *tables: str, log_partition: int | None = None) -> FinishedRun:
    return rebuild(InProcess, lake, lambda _: None, tables, log_partition)  # type: ignore[arg-type]


def assert_as_untouched(made: Made, lake: Lake) -> None:
    found = state(lake)
    for table, expected in made.expected.items():
        ours = [{name: row[name] for name in row if name not in ("theirs", "x")} for row in found[table]]
        assert ours == expected, table


def check_case(made: Made, lake: Lake, sql: Callable[..., None], case: Case, table: str) -> None:
    sql(lake, table, *case.statements)
    outcome = case.outcome if table in STATE else case.history
    if outcome == REFUSED:
        sentence = refused(made, lake)
        assert f"table {table} " in sentence
        assert re.search(rf"version \d+ \(({case.operation}) by Apache-Spark/4.*Delta-Lake.*, 20", sentence), sentence
        if table in HISTORY:
            make_good(lake, sql, table, sentence)
        else:
            assert f"offsetlake rebuild --table {table}" in sentence
            assert not [note for note in rebuilt(lake, table).notes if "refused" in note]
        go_on(made, lake)
    else:
        if table in STATE:
            check_snapshot(made, lake, table, vacuumed="VACUUM" in case.statements[-1])
        said = [line for line in go_on(made, lake) if "rearranged files" in line]
        assert bool(said) == (outcome == ADAPTED), said
        assert all(f"table {table}: version " in line and case.operation in line for line in said)
    assert_as_untouched(made, lake)


def check_snapshot(made: Made, lake: Lake, table: str, *, vacuumed: bool) -> None:
    """See that a reader, which writes nothing, has the rows as they were, or says what to do."""
    if vacuumed and guard.refuse_changed(lake, table)[table].rearranged:
        with pytest.raises(LakeUnusable, match="`offsetlake compact` adapts to that"):
            open_snapshot(str(lake.location), made.log(HALF))
    else:
        assert open_snapshot(str(lake.location), made.log(HALF)).tables[table].num_rows == lake.count(table)


def make_good(lake: Lake, sql: Callable[..., None], table: str, sentence: str) -> None:
    """Do as the sentence says."""
    if "remove them with" in sentence:
        rebuilt(lake, table)
        return
    with pytest.raises(TableChanged):
        rebuilt(lake, "offsets")
    if "restore their names" in sentence:
        sql(lake, table, "ALTER TABLE {t} RENAME COLUMN g TO group_id")
        return
    version = int(re.search(r"VERSION AS OF (\d+)", sentence)[1])  # type: ignore[index]
    sql(lake, table, f"RESTORE TABLE {{t}} TO VERSION AS OF {version}")


@pytest.mark.long
@pytest.mark.jvm
@pytest.mark.parametrize("place", [FOLDER, S3])
def test_tables_are_intact_after_several_changes_by_other_engines(
    made: Made, lake: Lake, sql: Callable[..., None]
) -> None:
    """A part of the matrix below, in one lake: what is adapted to together, then refusals one after the other."""
    by_name = {case.name: case for case in CASES}
    for table in ("offset_commits", "offsets", "groups"):
        sql(lake, table, *by_name["optimize"].statements)
    sql(lake, "groups", *by_name["add columns"].statements)
    said = [line.split(":")[0] for line in go_on(made, lake) if "rearranged files" in line]
    assert said == ["table offset_commits", "table offsets", "table groups"]
    assert_as_untouched(made, lake)
    sql(lake, "offsets", *by_name["delete, vectors"].statements)
    sql(lake, "groups", *by_name["cluster by"].statements)
    sql(lake, "group_members", *by_name["truncate"].statements)
    sql(lake, "offset_commits", *by_name["insert"].statements)
    with pytest.raises(TableChanged, match=r"table offset_commits .*RESTORE TABLE"):
        rebuilt(lake, *STATE)
    make_good(lake, sql, "offset_commits", refused(made, lake))
    assert "table offsets " in refused(made, lake)
    with pytest.raises(TableChanged, match="table offsets "):
        open_snapshot(str(lake.location), made.log(WHOLE))
    done = rebuilt(lake, *STATE)
    assert done.notes == ("dropped the features clustering, domainMetadata of table groups",)
    assert open_snapshot(str(lake.location), made.log(WHOLE)).tables["offsets"].num_rows == len(
        made.expected["offsets"]
    )
    go_on(made, lake)
    assert_as_untouched(made, lake)


@pytest.mark.long
@pytest.mark.jvm
@pytest.mark.parametrize(("case", "table", "place"), matrix(STATE, 0), ids=str)
def test_changed_state_table_is_refused_or_adapted_to(
    made: Made, lake: Lake, sql: Callable[..., None], case: Case, table: str
) -> None:
    check_case(made, lake, sql, case, table)


@pytest.mark.long
@pytest.mark.jvm
@pytest.mark.parametrize(("case", "table", "place"), matrix(HISTORY, 1), ids=str)
def test_changed_history_table_is_refused_or_adapted_to(
    made: Made, lake: Lake, sql: Callable[..., None], case: Case, table: str
) -> None:
    if case.history:
        check_case(made, lake, sql, case, table)
        return
    with pytest.raises((Py4JJavaError, PySparkException), match=r"(?i)append"):
        sql(lake, table, *case.statements)
    go_on(made, lake)
    assert_as_untouched(made, lake)
