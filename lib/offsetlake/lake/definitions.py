"""What the tables are: one JSON file each in `schemas/tables/`, read here, made and brought up to date here.

Columns are only ever appended. Whoever changes a table appends a column, or a check under a name of its own, whose
`since` is one above LAKE_VERSION, and raises LAKE_VERSION; a lake of an older version is brought up to date when it is
next opened for writing.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, Field, Schema

from offsetlake.resources import resource

LAKE_VERSION = 3
TABLES = (
    "offset_commits",
    "transaction_markers",
    "group_records",
    "share_state_records",
    "quarantine",
    "offsets",
    "pending_offsets",
    "groups",
    "group_members",
    "tombstones",
    "alterations",
    "runs",
)
_CONSTRAINT = "delta.constraints."


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """One table as its file says: columns and checks as JSON objects with `since`, Delta's own type names."""

    name: str
    comment: str
    columns: tuple[dict[str, Any], ...]
    checks: tuple[dict[str, Any], ...]
    properties: dict[str, str]

    @property
    def column_names(self) -> list[str]:
        """Names in the table's order."""
        return [column["name"] for column in self.columns]

    @property
    def repeating(self) -> list[str]:
        """Columns of strings of which few are different: files keep them as dictionaries."""
        return [column["name"] for column in self.columns if column.get("repeats")]

    def fields(self, since: int = 0) -> list[Field]:
        """Columns that came after lake version `since`, as Delta fields with their comments."""
        return [Field.from_json(json.dumps(_delta_field(c))) for c in self.columns if c["since"] > since]


def _delta_field(column: dict[str, Any]) -> dict[str, Any]:
    fields = {name: column[name] for name in ("name", "type", "nullable")}
    return fields | {"metadata": {"comment": column["comment"]} if column["comment"] else {}}


@cache
def definition(table: str) -> TableDefinition:
    """Read the definition of one of TABLES."""
    stored = json.loads(resource("schemas", "tables", f"{table}.json").read_text(encoding="utf-8"))
    return TableDefinition(
        name=stored["name"],
        comment=stored["comment"],
        columns=tuple(stored["columns"]),
        checks=tuple(stored["checks"]),
        properties=stored["properties"],
    )


def create_table(path: Path, of: TableDefinition) -> None:
    """Make the table, empty, with all its columns and checks; where a killed run left it half made, finish it."""
    table = DeltaTable.create(
        path, Schema(of.fields()), mode="ignore", name=of.name, description=of.comment, configuration=of.properties
    )
    _add_checks(table, of, since=0)


def upgrade_table(path: Path, of: TableDefinition, from_version: int) -> None:
    """Add what came to the definition after lake version `from_version`; run again, it adds nothing."""
    table = DeltaTable(path)
    present = {field.name for field in table.schema().fields}
    missing = [field for field in of.fields(from_version) if field.name not in present]
    if missing:
        table.alter.add_columns(missing)
    _add_checks(table, of, since=from_version)


def _add_checks(table: DeltaTable, of: TableDefinition, since: int) -> None:
    """Add the checks that came after lake version `since`, and drop those the definition no longer names."""
    present = table.metadata().configuration
    named = {f"{_CONSTRAINT}{check['name']}" for check in of.checks}
    for stale in sorted(key for key in present if key.startswith(_CONSTRAINT) and key not in named):
        table.alter.drop_constraint(stale.removeprefix(_CONSTRAINT))
    missing = {
        check["name"]: check["sql"]
        for check in of.checks
        if check["since"] > since and f"{_CONSTRAINT}{check['name']}" not in present
    }
    if missing:
        table.alter.add_constraint(missing)
