"""The tables are for everybody: four readers find the same rows, statistics are true, the log can be read itself."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, SparkSession

from offsetlake.lake.lake import Lake
from support.e2e.delta_files import DEFINITIONS, TABLES, Row, contents, files, plain
from support.e2e.wide_logs import write_wide_log
from support.oracle.log_reader import read_log
from support.oracle.random_logs import random_log
from support.oracle.replay import OffsetRecord, replay

pytestmark = pytest.mark.jvm


# --- four readers ---

READ_BY_SPARK = ("offset_commits", "runs")  # all types of columns; the other tables in `make test-all`


def by_spark(spark: SparkSession, path: Path) -> Iterator[Row]:
    return (row.asDict(recursive=True) for row in spark.read.format("delta").load(str(path)).toLocalIterator())


def by_duckdb(_spark: SparkSession, path: Path) -> Iterator[Row]:
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        try:
            connection.load_extension("delta")
            found = connection.sql(f"SELECT * FROM delta_scan('{path}')")
        except duckdb.Error:  # not installed here
            connection.register("lake_table", DeltaTable(path).to_pyarrow_dataset())
            found = connection.sql("SELECT * FROM lake_table")
        return iter(pa.table(found).to_pylist())


def by_delta_rs(_spark: SparkSession, path: Path) -> Iterator[Row]:
    found = QueryBuilder().register("lake_table", DeltaTable(path)).execute("SELECT * FROM lake_table")
    return iter(pa.RecordBatchReader.from_stream(found).read_all().to_pylist())


def by_polars(_spark: SparkSession, path: Path) -> Iterator[Row]:
    return iter(polars.read_delta(str(path)).to_dicts())


@pytest.mark.parametrize(
    ("read", "table"),
    [
        *((read, table) for read in (by_duckdb, by_delta_rs, by_polars) for table in TABLES),
        *((by_spark, table) for table in READ_BY_SPARK),
        *(pytest.param(by_spark, table, marks=pytest.mark.long) for table in TABLES if table not in READ_BY_SPARK),
    ],
)
def test_all_readers_return_the_same_rows(
    spark: SparkSession, full_lake: Lake, read: Callable[[SparkSession, Path], Iterator[Row]], table: str
) -> None:
    assert plain(read(spark, full_lake.table_location(table).path)) == contents(full_lake, table)


# --- statistics, and what is skipped by them ---


@pytest.mark.parametrize("table", TABLES)
def test_file_statistics_match_the_rows(full_lake: Lake, table: str) -> None:
    named = DEFINITIONS[table]["properties"].get("delta.dataSkippingStatsColumns")
    simple = [c["name"] for c in DEFINITIONS[table]["columns"] if c["type"] in ("long", "integer", "string")]
    actions = pa.table(DeltaTable(full_lake.table_location(table).path).get_add_actions(flatten=True)).to_pylist()
    assert {action["path"] for action in actions} == {file["path"] for file in files(full_lake, table)}
    for action in actions:
        path = full_lake.table_location(table).path / action["path"]
        rows = pq.ParquetFile(path).read()
        assert action["num_records"] == rows.num_rows > 0
        assert action["size_bytes"] == path.stat().st_size
        for name in named.split(",") if named else simple:
            told = {bound: action.get(f"{bound}.{name}") for bound in ("min", "max")}
            assert told == pc.min_max(rows[name]).as_py(), name
            assert action[f"null_count.{name}"] == rows[name].null_count, name


@pytest.mark.long
def test_spark_skips_files_by_group_and_finds_its_rows(spark: SparkSession, full_log: Path, full_lake: Lake) -> None:
    expected = replay(read_log(full_log)).committed
    offsets = spark.read.format("delta").load(str(full_lake.table_location("offsets").path))
    everything = groups_by_file(full_lake, "offsets")
    assert names(offsets) == everything.keys()
    skipped = 0
    for group in sorted({group for group, _, _ in expected}):
        chosen = offsets.where(offsets.group_id == group)
        assert names(chosen) == {name for name, held in everything.items() if min(held) <= group <= max(held)}
        skipped += len(everything) - len(names(chosen))
        found = {(row.group_id, row.topic, row.partition): row.committed_offset for row in chosen.collect()}
        assert found == {key: commit.committed_offset for key, commit in expected.items() if key[0] == group}
    assert skipped


def groups_by_file(lake: Lake, table: str) -> dict[str, set[str]]:
    paths = [lake.table_location(table).path / file["path"] for file in files(lake, table)]
    return {path.name: set(pq.ParquetFile(path).read(["group_id"])["group_id"].to_pylist()) for path in paths}


def names(rows: DataFrame) -> set[str]:
    """The files that would be read for these rows."""
    return {Path(file).name for file in rows.inputFiles()}


# --- the log itself, as a source ---


def commits_of(source: DataFrame) -> list[Row]:
    return [{name: value for name, value in row.asDict().items() if name != "superseded"} for row in source.collect()]


def as_row(entry: OffsetRecord) -> Row:
    record, commit = entry.record, entry.commit
    group_id, topic, partition = entry.key
    plain_producer = record.producer_id == -1
    return {
        "log_partition": record.log_partition,
        "log_offset": record.log_offset,
        "log_timestamp": None if record.log_timestamp == -1 else record.log_timestamp,
        "kind": entry.kind,
        "group_id": group_id,
        "topic": topic,
        "partition": partition,
        "committed_offset": commit and commit.committed_offset,
        "leader_epoch": commit and commit.leader_epoch,
        "metadata": None if commit is None else commit.metadata,
        "commit_timestamp": commit and commit.commit_timestamp,
        "expire_timestamp": commit and commit.expire_timestamp,
        "topic_id": commit and commit.topic_id,
        "record_type": entry.key_type,
        "value_version": entry.value_version,
        "producer_id": None if plain_producer else record.producer_id,
        "producer_epoch": None if plain_producer else record.producer_epoch,
        "commit_id": entry.commit_id,
        "commit_size": entry.commit_size,
    }


@pytest.mark.long
def test_log_source_is_read_in_parallel(spark: SparkSession, tmp_path: Path) -> None:
    random_log(random.Random(32), 3_000, groups=30, log_partitions=5, commit_ids=(7,)).write(tmp_path)
    write_wide_log(tmp_path, ["wide-0", "wide-1"], 100)
    expected = [as_row(entry) for entry in replay(read_log(tmp_path)).history]
    source = spark.read.format("offset_commit_log").option("log", str(tmp_path)).load()
    assert source.rdd.getNumPartitions() > 1
    assert plain(iter(commits_of(source))) == plain(iter(expected))
    ends = {row["log_partition"]: row["log_offset"] + 1 for row in expected if row["log_partition"] < 3}
    middle = {partition: (end // 4, end * 3 // 4) for partition, end in ends.items()}
    chosen = [row for row in expected if row["log_offset"] in range(*middle.get(row["log_partition"], (0, 0)))]
    ranges = json.dumps({f"__consumer_offsets-{partition}": offsets for partition, offsets in middle.items()})
    part = spark.read.format("offset_commit_log").options(log=str(tmp_path), ranges=ranges).load()
    assert plain(iter(commits_of(part))) == plain(iter(chosen))
    assert 0 < len(chosen) < len(expected)
