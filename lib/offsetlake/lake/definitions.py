"""What the tables are: one JSON file each in `schemas/tables/`, read here, made and brought up to date here.

A definition only allows more. Whoever changes a table appends a column or a check whose `since` is one above
LAKE_VERSION, or lets a column be null or a check go, and raises LAKE_VERSION; a lake of an older version follows when
it is next opened for writing. A check that says something else has another name.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, Field, Schema

from offsetlake.lake.commits import ours
from offsetlake.util.resources import resource

LAKE_VERSION = 6
TABLES = (
    "offset_commits",
    "transaction_markers",
    "group_records",
    "share_state_records",
    "quarantine",
    "audit_events",
    "offsets",
    "pending_offsets",
    "groups",
    "group_members",
    "tombstones",
    "alterations",
    "log_ends",
    "runs",
)
FORMER_NAMES = {"acts": "audit_events"}
"""Tables by the names they had before lake version 6."""

_OURS = ours("create", LAKE_VERSION)
_CHECK = "delta.constraints."  # what the name of a check stands behind among a table's properties


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


def current_name(table: str) -> str:
    """Return the name of a table that may be given by a former name."""
    return FORMER_NAMES.get(table, table)


def create_table(path: Path, of: TableDefinition) -> None:
    """Make the table, empty, with all its columns and checks; where a killed run left it half made, finish it."""
    table = DeltaTable.create(
        path, Schema(of.fields()), mode="ignore", name=of.name, description=of.comment, configuration=of.properties,
        commit_properties=_OURS,
    )  # fmt: skip
    add_checks(table, of, since=0)


def upgrade_table(path: Path, of: TableDefinition, from_version: int) -> None:
    """Bring a table of lake version `from_version` to its definition; run again, it changes nothing."""
    table = DeltaTable(path)
    present = {field.name: field for field in table.schema().fields}
    missing = [field for field in of.fields(from_version) if field.name not in present]
    if missing:
        table.alter.add_columns(missing, commit_properties=_OURS)
    _loosen(table, of, present)
    add_checks(table, of, since=from_version)


def _loosen(table: DeltaTable, of: TableDefinition, present: Mapping[str, Field]) -> None:
    """Drop the checks and NOT NULLs that the definition has no more, and say what it says now."""
    kept = {f"{_CHECK}{check['name']}" for check in of.checks}
    for name in table.metadata().configuration:
        if name.startswith(_CHECK) and name not in kept:
            table.alter.drop_constraint(name.removeprefix(_CHECK), commit_properties=_OURS)
    for field in (each for each in of.fields() if each.name in present):
        if field.nullable and not present[field.name].nullable:
            table.alter.drop_column_not_null(field.name, commit_properties=_OURS)
        if field.metadata != present[field.name].metadata:
            table.alter.set_column_metadata(field.name, field.metadata, commit_properties=_OURS)
    if table.metadata().name != of.name:
        table.alter.set_table_name(of.name, commit_properties=_OURS)
    if table.metadata().description != of.comment:
        table.alter.set_table_description(of.comment, commit_properties=_OURS)


def add_checks(table: DeltaTable, of: TableDefinition, since: int) -> None:
    """Add the checks that came after lake version `since`, where they are not there."""
    present = table.metadata().configuration
    missing = {
        check["name"]: check["sql"]
        for check in of.checks
        if check["since"] > since and f"{_CHECK}{check['name']}" not in present
    }
    if missing:
        table.alter.add_constraint(missing, commit_properties=_OURS)
