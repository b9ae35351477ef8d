"""What is in a table, by its definition, Delta's own log and the Parquet files alone: the oracle of all readers."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from offsetlake.lake.lake import Lake

ROOT = Path(__file__).parents[3]
DEFINITIONS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "schemas" / "tables").glob("*.json")
}
TABLES = sorted(DEFINITIONS)

Row = dict[str, Any]


def files(lake: Lake, table: str) -> list[Row]:
    """The `add` actions that no later action removes, in Delta's transaction log."""
    added: dict[str, Row] = {}
    for version in sorted((lake.table_path(table) / "_delta_log").glob("*.json")):
        for action in map(json.loads, version.read_text(encoding="utf-8").splitlines()):
            if "add" in action:
                added[action["add"]["path"]] = action["add"]
            elif "remove" in action:
                del added[action["remove"]["path"]]
    return list(added.values())


def contents(lake: Lake, table: str) -> list[Row]:
    parts = [pq.ParquetFile(lake.table_path(table) / file["path"]).read() for file in files(lake, table)]
    return plain(row for part in parts for row in part.to_pylist())


def plain(found: Iterable[Row]) -> list[Row]:
    """Rows in one order, with values of one type whoever has read them."""
    return sorted(({name: _plain(value) for name, value in row.items()} for row in found), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):  # a map, as pyarrow gives it
            return dict(value)
        if value and isinstance(value[0], dict) and value[0].keys() == {"key", "value"}:  # a map, as polars does
            return {entry["key"]: entry["value"] for entry in value}
        return [_plain(inner) for inner in value]
    return value
