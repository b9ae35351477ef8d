"""The peers of the jobs: the same work in other engines, or without checks."""

import itertools
import os
import struct
from pathlib import Path
from typing import Any

import duckdb
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from offsetlake.lake.lake import Lake
from offsetlake.rules.reduction import KEY

SETTINGS = {
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "20",  # the fast path for a million keys per task
    "spark.sql.parquet.compression.codec": "zstd",
}
"""Spark settings that make the peers fast on one machine; the jobs do not use them."""


def window_job(spark: SparkSession, lake: Lake, out: Path) -> None:
    """Reduce commits with a window function over each key, the usual way in Spark."""
    commits = spark.read.format("delta").load(str(lake.table_location("offset_commits").path))
    newest = Window.partitionBy(*KEY).orderBy(F.col("log_offset").desc())
    latest = commits.withColumn("rank", F.row_number().over(newest)).where("rank = 1 AND kind = 'commit'")
    latest.drop("rank", "superseded", "ingest_run", "kind").write.format("delta").mode("overwrite").save(str(out))


def hash_job(spark: SparkSession, lake: Lake, out: Path) -> None:
    """Reduce commits with a hash aggregation over primitive values, the fastest way in Spark.

    With a text column Spark would sort all commits, so `metadata` is omitted and `kind` becomes a boolean.
    """
    commits = spark.read.format("delta").load(str(lake.table_location("offset_commits").path))
    numbers = ("committed_offset", "leader_epoch", "commit_timestamp", "log_timestamp", "log_partition", "producer_id")
    columns = commits.select(*KEY, "log_offset", *numbers, (F.col("kind") == "commit").alias("is_commit"))
    newest = [F.max_by(name, "log_offset").alias(name) for name in (*numbers, "is_commit")]
    latest = columns.groupBy(*KEY).agg(F.max("log_offset").alias("log_offset"), *newest)
    latest.where("is_commit").drop("is_commit").write.format("delta").mode("overwrite").save(str(out))


def duckdb_job(lake: Lake, out: Path) -> None:
    values = (
        "committed_offset, leader_epoch, metadata, commit_timestamp, log_timestamp, log_partition, producer_id, kind"
    )
    sql = f"""COPY (SELECT group_id, topic, "partition", max(log_offset) AS log_offset,
              {", ".join(f"arg_max({name}, log_offset) AS {name}" for name in values.split(", "))}
              FROM read_parquet('{lake.table_location("offset_commits").path}/*.parquet') GROUP BY ALL)
              TO '{out}' (FORMAT parquet, COMPRESSION zstd)"""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2")
        connection.execute(sql)


def bare_tombstones(keys: list[dict[str, Any]], path: Path) -> None:
    with path.open("wb") as file:
        for group_id, rows in itertools.groupby(keys, key=lambda row: row["group_id"]):
            builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 30)
            for index, row in enumerate(rows):
                texts = b"".join(struct.pack(">h", len(text)) + text.encode() for text in (group_id, row["topic"]))
                builder.append(index, 0, struct.pack(">h", 1) + texts + struct.pack(">i", row["partition"]), None, [])
            file.write(builder.build())
        file.flush()
        os.fsync(file.fileno())
