"""Definitions of the tables, one JSON file each in `schemas/tables/`: read, created and upgraded here.

A change of a definition may only allow more. To change a table, append a column or a check whose `since` is
LAKE_VERSION + 1, or add a property, or make a column nullable, or remove a check, or change a comment; then increment
LAKE_VERSION. A lake of an older version is upgraded when it is next opened for writing. A check with another condition
needs another name.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NotRequired, TypedDict

from deltalake import DeltaTable, Field, Schema

from offsetlake.lake.delta.commits import ours
from offsetlake.util.resources import resource

LAKE_VERSION = 10
HISTORY = (
    "offset_commits",
    "transaction_markers",
    "group_records",
    "share_state_records",
    "quarantine",
    "audit_events",
)
REDUCED_HISTORY = HISTORY[:5]
"""The history tables that the state tables are reduced from."""
STATE = ("offsets", "pending_offsets", "groups", "group_members", "share_partitions", "unresolved_records")
TABLES = (*HISTORY, *STATE, "tombstones", "alterations", "log_ends", "history_cuts", "runs")
FORMER_NAMES = {"acts": "audit_events"}
"""Tables by the names they had before lake version 6."""

_OURS = ours("create", LAKE_VERSION)
_CHECK = "delta.constraints."  # prefix of the names of checks among the properties of a table


class ColumnDefinition(TypedDict):
    """The definition of a column."""

    name: str
    type: str | dict[str, Any]
    """As in the schema of a Delta log: the name of the type, or an object for a nested type."""
    nullable: bool
    comment: str
    since: int
    """The lake version that added the column."""
    values: NotRequired[dict[str, str]]
    """What the values mean, for columns with few different values."""
    repeats: NotRequired[bool]
    """Whether files store the strings as dictionaries."""


class CheckDefinition(TypedDict):
    """The definition of a CHECK constraint; `since` is the lake version that added it."""

    name: str
    sql: str
    since: int


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """The definition of a table."""

    name: str
    comment: str
    columns: tuple[ColumnDefinition, ...]
    checks: tuple[CheckDefinition, ...]
    properties: dict[str, str]

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in the order of the table."""
        return [column["name"] for column in self.columns]

    @property
    def column_comments(self) -> dict[str, str]:
        """The comments of the columns by name, in the order of the table."""
        return {column["name"]: column["comment"] for column in self.columns}

    def values(self, column: str) -> dict[str, str]:
        """Return what each value of a column means, if the definition says so."""
        return next(each for each in self.columns if each["name"] == column).get("values", {})

    @property
    def repeating(self) -> list[str]:
        """Columns of strings with few different values, which files store as dictionaries."""
        return [column["name"] for column in self.columns if column.get("repeats")]

    def fields(self, since: int = 0) -> list[Field]:
        """Return the columns that were added after lake version `since`, as Delta fields with comments."""
        return [Field.from_json(json.dumps(_delta_field(c))) for c in self.columns if c["since"] > since]


def _delta_field(column: ColumnDefinition) -> dict[str, Any]:
    fields = {"name": column["name"], "type": column["type"], "nullable": column["nullable"]}
    return fields | {"metadata": {"comment": column["comment"]} if column["comment"] else {}}


@cache
def definition(table: str) -> TableDefinition:
    """Return the definition of one of TABLES."""
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


def create_table(uri: str, wanted: TableDefinition) -> None:
    """Create the empty table with all columns and checks; completes a table that a killed run left incomplete."""
    table = DeltaTable.create(
        uri,
        Schema(wanted.fields()),
        mode="ignore",
        name=wanted.name,
        description=wanted.comment,
        configuration=wanted.properties,
        commit_properties=_OURS,
    )
    add_checks(table, wanted, since=0)


def upgrade_table(uri: str, wanted: TableDefinition, from_version: int) -> None:
    """Upgrade a table of lake version `from_version` to its definition; idempotent."""
    table = DeltaTable(uri)
    present = {field.name: field for field in table.schema().fields}
    missing = [field for field in wanted.fields(from_version) if field.name not in present]
    if missing:
        table.alter.add_columns(missing, commit_properties=_OURS)
    _loosen(table, wanted, present)
    lacking = {name: v for name, v in wanted.properties.items() if name not in table.metadata().configuration}
    if lacking:
        table.alter.set_table_properties(lacking, commit_properties=_OURS)
    add_checks(table, wanted, since=from_version)


def _loosen(table: DeltaTable, wanted: TableDefinition, present: Mapping[str, Field]) -> None:
    """Drop checks and NOT NULL constraints that the definition no longer has, and update names and comments."""
    kept = {f"{_CHECK}{check['name']}" for check in wanted.checks}
    for name in table.metadata().configuration:
        if name.startswith(_CHECK) and name not in kept:
            table.alter.drop_constraint(name.removeprefix(_CHECK), commit_properties=_OURS)
    for field in (field for field in wanted.fields() if field.name in present):
        if field.nullable and not present[field.name].nullable:
            table.alter.drop_column_not_null(field.name, commit_properties=_OURS)
        if field.metadata != present[field.name].metadata:
            table.alter.set_column_metadata(field.name, field.metadata, commit_properties=_OURS)
    if table.metadata().name != wanted.name:
        table.alter.set_table_name(wanted.name, commit_properties=_OURS)
    if table.metadata().description != wanted.comment:
        table.alter.set_table_description(wanted.comment, commit_properties=_OURS)


def add_checks(table: DeltaTable, wanted: TableDefinition, since: int) -> None:
    """Add the checks that were added after lake version `since`, unless the table has them."""
    present = table.metadata().configuration
    missing = {
        check["name"]: check["sql"]
        for check in wanted.checks
        if check["since"] > since and f"{_CHECK}{check['name']}" not in present
    }
    if missing:
        table.alter.add_constraint(missing, commit_properties=_OURS)
