"""The content of a table, from its definition, the Delta log and the Parquet files alone: the oracle of all readers."""

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
    """Return the `add` actions of the Delta log that no later action removes."""
    return _active(lake.table_location(table).path)


def active_paths(table: Path) -> list[str]:
    """Return the paths of the data files of the table in a folder."""
    return [file["path"] for file in _active(table)]


def _active(table: Path) -> list[Row]:
    added: dict[str, Row] = {}
    for version in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, version.read_text(encoding="utf-8").splitlines()):
            if "add" in action:
                added[action["add"]["path"]] = action["add"]
            elif "remove" in action:
                del added[action["remove"]["path"]]
    return list(added.values())


def contents(lake: Lake, table: str) -> list[Row]:
    parts = [pq.ParquetFile(lake.table_location(table).path / file["path"]).read() for file in files(lake, table)]
    return plain(row for part in parts for row in part.to_pylist())


def plain(rows: Iterable[Row]) -> list[Row]:
    """Return the rows sorted, with values whose types do not depend on the reader."""
    return sorted(({name: _plain(value) for name, value in row.items()} for row in rows), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):  # a map, as pyarrow returns it
            return dict(value)
        if value and isinstance(value[0], dict) and value[0].keys() == {"key", "value"}:  # a map, as polars returns it
            return {entry["key"]: entry["value"] for entry in value}
        return [_plain(inner) for inner in value]
    return value
