"""What the definitions promise of the tables holds: on the rows, in Spark's eyes, and against a row that breaks it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from offsetlake.lake.lake import Lake
from support.e2e.delta_files import DEFINITIONS, TABLES, Row, contents

pytestmark = pytest.mark.jvm

CHECKS = [(table, check["name"], check["sql"]) for table in TABLES for check in DEFINITIONS[table]["checks"]]


# --- on the rows, and as Spark sees the tables ---


@pytest.mark.long
@pytest.mark.parametrize("table", sorted({table for table, _, _ in CHECKS}))
def test_all_rows_satisfy_the_check_constraints(spark: SparkSession, full_lake: Lake, table: str) -> None:
    rows = spark.read.format("delta").load(str(full_lake.table_location(table).path))
    held = {name: f"count_if({sql})" for of, name, sql in CHECKS if of == table}
    counts = rows.selectExpr("count(*) AS all_rows", *(f"{sql} AS {name}" for name, sql in held.items())).first()
    assert counts is not None
    assert set(counts.asDict().values()) == {len(contents(full_lake, table))}, counts


@pytest.mark.long
@pytest.mark.parametrize("table", TABLES)
def test_spark_schema_equals_the_definition(spark: SparkSession, full_lake: Lake, table: str) -> None:
    """Names, types, what may be null, and comments, to the leaves: as Spark sees them."""
    defined = DEFINITIONS[table]
    found = spark.read.format("delta").load(str(full_lake.table_location(table).path))
    plans = {"type": "struct", "fields": [_spark_field(column) for column in defined["columns"]]}
    assert json.loads(found.schema.json()) == plans
    details = DeltaTable.forPath(spark, str(full_lake.table_location(table).path)).detail().collect()[0]
    assert (details["name"], details["description"]) == (defined["name"], defined["comment"])
    assert defined["properties"].items() <= details["properties"].items()


def _spark_field(column: Row) -> Row:
    comment = {"comment": column["comment"]} if column.get("comment") else {}
    return {"name": column["name"], "type": column["type"], "nullable": column["nullable"], "metadata": comment}


@pytest.mark.parametrize("table", TABLES)
def test_required_columns_have_no_nulls(full_lake: Lake, table: str) -> None:
    columns = {"type": "struct", "fields": DEFINITIONS[table]["columns"]}
    for row in contents(full_lake, table):
        _assert_no_nulls(columns, row)


def _assert_no_nulls(kind: Any, value: Any) -> None:
    """Also of what is nested."""
    if value is None or isinstance(kind, str):
        return
    if kind["type"] == "struct":
        for column in kind["fields"]:
            assert column["nullable"] or value[column["name"]] is not None, column["name"]
            _assert_no_nulls(column["type"], value[column["name"]])
    elif kind["type"] == "array":
        for inner in value:
            assert kind["containsNull"] or inner is not None
            _assert_no_nulls(kind["elementType"], inner)
    else:
        assert kind["valueContainsNull"] or None not in value.values()


# --- what Spark refuses ---

# What breaks each check in a row that is otherwise good.
BREAKS: dict[tuple[str, str], Row] = {
    ("audit_events", "log_position_known"): {"log_offset": 5, "last_log_offset": 4},
    ("alterations", "outcome_known"): {"outcome": "emitted"},
    ("alterations", "refused_has_reason"): {"outcome": "refused", "reason": None},
    ("group_records", "kind_known"): {"kind": "update"},
    ("group_records", "log_position_known"): {"log_offset": -1},
    ("group_records", "tombstone_has_none"): {"kind": "tombstone", "value": "{}"},
    ("group_records", "value_has_value"): {"kind": "value", "value": None},
    ("groups", "group_type_known"): {"group_type": "simple"},
    ("groups", "log_partition_known"): {"log_partition": -1},
    ("groups", "subscription_known"): {"subscription": "some"},
    ("history_cuts", "scope_known"): {"scope": "offsets"},
    ("history_cuts", "through_run_known"): {"through_run": 0},
    ("log_ends", "offsets_known_or_gone"): {"end_offset": -1},
    ("offset_commits", "commit_has_value"): {"kind": "commit", "committed_offset": None},
    ("offset_commits", "kind_known"): {"kind": "value"},
    ("offset_commits", "log_position_known"): {"log_partition": -1},
    ("offset_commits", "part_has_no_producer"): {"commit_id": 1, "commit_size": 1, "producer_id": 1},
    ("offset_commits", "part_has_size"): {"commit_id": 1, "commit_size": 0, "producer_id": None},
    ("offset_commits", "tombstone_has_none"): {"kind": "tombstone", "committed_offset": 1},
    ("offsets", "log_position_known"): {"log_offset": -1},
    ("pending_offsets", "log_position_known"): {"log_offset": -1},
    ("pending_offsets", "part_has_size"): {"commit_id": 1, "commit_size": None, "producer_id": None},
    ("pending_offsets", "transaction_or_part"): {"commit_id": None, "commit_size": None, "producer_id": None},
    ("pending_offsets", "transactional_has_value"): {
        "commit_id": None, "commit_size": None, "producer_id": 1, "producer_epoch": 0, "metadata": None,
    },
    ("runs", "outcome_known"): {"outcome": "failed"},
    ("runs", "times_in_order"): {"started_at": 2, "finished_at": 1},
    ("share_partitions", "log_position_known"): {"log_offset": -1},
    ("share_state_records", "kind_known"): {"kind": "value"},
    ("share_state_records", "log_position_known"): {"log_offset": -1},
    ("share_state_records", "state_has_value"): {"kind": "snapshot", "snapshot_epoch": None},
    ("share_state_records", "tombstone_has_none"): {"kind": "tombstone", "snapshot_epoch": 1},
    ("tombstones", "outcome_is_known"): {"outcome": "sent"},
    ("tombstones", "refused_has_reason"): {"outcome": "refused", "reason": None},
    ("transaction_markers", "log_position_known"): {"log_offset": -1},
    ("transaction_markers", "marker_is_known"): {"marker": "commit"},
    ("unresolved_records", "log_position_known"): {"log_offset": -1},
    ("unresolved_records", "scope_known"): {"scope": "topic"},
}  # fmt: skip

REFUSED_BY_SPARK = [("offset_commits", "commit_has_value"), ("runs", "times_in_order")]
"""The checks that Spark applies in `make test`; Spark applies the other ones in `make test-all`."""


@pytest.fixture(scope="module")
def other_lake(full_lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A copy to write to."""
    return Lake.open(Path(shutil.copytree(full_lake.location.path, tmp_path_factory.mktemp("other") / "lake")))


def append(spark: SparkSession, lake: Lake, table: str, changes: Row) -> None:
    """Append the table's first row with some columns changed, by Spark."""
    path = str(lake.table_location(table).path)
    schema = _nullable(spark.read.format("delta").load(path).schema)
    row = pa.Table.from_pylist([contents(lake, table)[0] | changes], to_arrow_schema(schema))  # rows would need Python
    spark.createDataFrame(row, schema).write.format("delta").mode("append").save(path)


def _nullable(kind: DataType) -> Any:
    """The same type without NOT NULLs: Spark must not refuse the row before Delta sees it."""
    if isinstance(kind, StructType):
        made = StructType()
        for field in kind.fields:
            made.add(field.name, _nullable(field.dataType), nullable=True)
        return made
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    return MapType(kind.keyType, kind.valueType) if isinstance(kind, MapType) else kind


def test_every_check_constraint_has_a_violating_row() -> None:
    assert BREAKS.keys() == {(table, name) for table, name, _ in CHECKS}


@pytest.mark.parametrize(
    ("table", "name"),
    [pytest.param(*check, marks=() if check in REFUSED_BY_SPARK else pytest.mark.long) for check in BREAKS],
)
def test_spark_refuses_a_row_that_violates_a_check_constraint(
    spark: SparkSession, other_lake: Lake, table: str, name: str
) -> None:
    before = other_lake.versions(table)
    with pytest.raises((Py4JJavaError, PySparkException)) as refused:
        append(spark, other_lake, table, BREAKS[table, name])
    assert f"CHECK constraint {name} " in str(refused.value)
    assert other_lake.versions(table) == before


@pytest.mark.long
@pytest.mark.parametrize("table", TABLES)
def test_spark_accepts_a_valid_row_and_refuses_null_in_a_required_column(
    spark: SparkSession, other_lake: Lake, table: str
) -> None:
    rows = other_lake.count(table)
    append(spark, other_lake, table, {})
    assert other_lake.count(table) == rows + 1
    needed = next(column["name"] for column in DEFINITIONS[table]["columns"] if not column["nullable"])
    with pytest.raises((Py4JJavaError, PySparkException)) as refused:
        append(spark, other_lake, table, {needed: None})
    assert f"NOT NULL constraint violated for column: {needed}" in str(refused.value)
    assert other_lake.count(table) == rows + 1


@pytest.mark.parametrize("table", [t for t in TABLES if "delta.appendOnly" in DEFINITIONS[t]["properties"]])
def test_history_is_append_only(spark: SparkSession, other_lake: Lake, table: str) -> None:
    rows = other_lake.count(table)
    with pytest.raises((Py4JJavaError, PySparkException), match=r"only.*append"):
        DeltaTable.forPath(spark, str(other_lake.table_location(table).path)).delete()
    assert other_lake.count(table) == rows
