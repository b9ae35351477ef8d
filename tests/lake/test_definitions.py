"""Definitions of tables, and the upgrade of lakes of older versions to them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from offsetlake.lake import creation
from offsetlake.lake import lake as lake_module
from offsetlake.lake.definitions import LAKE_VERSION, TABLES, TableDefinition, definition
from offsetlake.lake.lake import Lake

DEFINITIONS = Path(__file__).parents[2] / "schemas" / "tables"
NEW_COLUMN = {"name": "rack", "type": "string", "nullable": True, "comment": "new", "since": LAKE_VERSION + 1}
NEW_CHECK = {"name": "rack_named", "sql": "rack IS NULL OR rack <> ''", "since": LAKE_VERSION + 1}


LOOSER_COLUMN = {"name": "coordinator_epoch", "nullable": True, "comment": "null = not told"}
LOOSER_CHECK = {"name": "marker_or_none", "sql": "marker <> ''", "since": LAKE_VERSION + 1}


def _newer(table: str) -> TableDefinition:
    """A table with a new column, check and property, a column that can be null, and a check instead of another."""
    of = definition(table)
    if table != "transaction_markers":
        return of
    columns = [column | (LOOSER_COLUMN if column["name"] == LOOSER_COLUMN["name"] else {}) for column in of.columns]
    checks = [check for check in of.checks if check["name"] != "marker_is_known"]
    properties = of.properties | {"delta.logRetentionDuration": "interval 20 days"}
    checks = [*checks, NEW_CHECK, LOOSER_CHECK]
    return replace(of, comment="markers", columns=(*columns, NEW_COLUMN), checks=(*checks,), properties=properties)


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> Any:
    def switch() -> None:
        monkeypatch.setattr(creation, "definition", _newer)
        for module in (lake_module, creation):
            monkeypatch.setattr(module, "LAKE_VERSION", LAKE_VERSION + 1)

    return switch


def _shape(lake: Lake, table: str) -> tuple[Any, Any]:
    of = DeltaTable(lake.table_location(table).path)
    return of.schema().to_json(), sorted(of.metadata().configuration.items())


def _schema(lake: Lake) -> pa.Schema:
    return pa.schema(DeltaTable(lake.table_location("transaction_markers").path).schema().to_arrow())


def test_upgraded_lake_has_the_tables_of_a_new_one(tmp_path: Path, newer: Any) -> None:
    old = Lake.create(tmp_path / "old")
    schema = _schema(old)
    row = dict.fromkeys(schema.names, 1) | {"marker": "COMMIT"}
    write_deltalake(
        old.table_location("transaction_markers").path, pa.Table.from_pylist([row], schema=schema), mode="append"
    )
    newer()
    upgraded, new = Lake.create(tmp_path / "old"), Lake.create(tmp_path / "new")
    for table in TABLES:
        assert _shape(upgraded, table) == _shape(new, table)
    assert upgraded.query("SELECT marker, rack FROM transaction_markers").to_pylist() == [
        {"marker": "COMMIT", "rack": None}
    ]
    looser = row | {"marker": "MAYBE", "coordinator_epoch": None}
    write_deltalake(
        old.table_location("transaction_markers").path,
        pa.Table.from_pylist([looser], schema=_schema(old)),
        mode="append",
    )
    assert upgraded.count("transaction_markers", "coordinator_epoch IS NULL") == 1


def test_interrupted_upgrade_is_completed(tmp_path: Path, newer: Any) -> None:
    old = Lake.create(tmp_path / "lake")
    marker = (tmp_path / "lake" / "offsetlake.json").read_text()
    newer()
    Lake.create(tmp_path / "lake")
    once, versions = _shape(old, "transaction_markers"), old.versions(*TABLES)
    (tmp_path / "lake" / "offsetlake.json").write_text(marker)
    assert _shape(Lake.create(tmp_path / "lake"), "transaction_markers") == once
    assert old.versions(*TABLES) == versions, "what is there is not written again"


@pytest.mark.parametrize("table", TABLES)
def test_definition_is_complete(table: str) -> None:
    of = definition(table)
    assert of.name == table
    assert of.comment
    names = of.column_names
    assert len(set(names)) == len(names)
    assert len({check["name"] for check in of.checks}) == len(of.checks)
    assert all(1 <= part["since"] <= LAKE_VERSION for part in (*of.columns, *of.checks))


def test_every_definition_belongs_to_a_table() -> None:
    assert {path.stem for path in DEFINITIONS.iterdir()} == set(TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_definition_has_known_fields_only(table: str) -> None:
    stored = json.loads((DEFINITIONS / f"{table}.json").read_text(encoding="utf-8"))
    assert stored.keys() == {"name", "comment", "columns", "checks", "properties"}
    for column in stored["columns"]:
        assert column.keys() - {"repeats", "values"} == {"name", "type", "nullable", "comment", "since"}
        assert column["type"] == "string" or "repeats" not in column
        assert all(value in column["comment"] for value in column.get("values", {}))
    assert {frozenset(check) for check in stored["checks"]} <= {frozenset({"name", "sql", "since"})}
    names = [column["name"] for column in stored["columns"]]
    indexed = stored["properties"].get("delta.dataSkippingStatsColumns", names[0]).split(",")
    assert set(indexed) <= set(names)
    made = stored["columns"][0]["since"]
    later = [column["name"] for column in stored["columns"] if column["since"] > made]
    assert names[len(names) - len(later) :] == later, "new columns are appended"
    assert all(column["nullable"] for column in stored["columns"] if column["since"] > made), "old rows have none"


def test_created_table_matches_its_definition(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    for table in TABLES:
        stored = json.loads((DEFINITIONS / f"{table}.json").read_text(encoding="utf-8"))
        made = DeltaTable(lake.table_location(table).path)
        fields = json.loads(made.schema().to_json())["fields"]
        assert [(field["name"], field["nullable"]) for field in fields] == [
            (column["name"], column["nullable"]) for column in stored["columns"]
        ]
        for field, column in zip(fields, stored["columns"], strict=True):
            assert field["type"] == column["type"] or isinstance(column["type"], dict)
            assert field["metadata"].get("comment", "") == column["comment"]
        assert (made.metadata().name, made.metadata().description) == (table, stored["comment"])
        checks = {f"delta.constraints.{check['name']}": check["sql"] for check in stored["checks"]}
        kept = made.metadata().configuration
        assert {name for name in kept if name.startswith("delta.constraints.")} == checks.keys()
        assert stored["properties"].items() <= kept.items()


def test_row_that_violates_a_check_is_refused(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    path = lake.table_location("transaction_markers").path
    schema = pa.schema(DeltaTable(path).schema().to_arrow())
    row = dict.fromkeys(schema.names, 1) | {"marker": "MAYBE"}
    with pytest.raises(DeltaError, match="marker"):
        write_deltalake(path, pa.Table.from_pylist([row], schema=schema), mode="append")
