"""The tables and views of a lake as sources of dbt, for a properties file in the folder `models` of a dbt project."""

import json
from collections.abc import Iterator, Mapping

from offsetlake.lake.definitions import TABLES, definition
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.catalogs import CatalogSchema
from offsetlake.lake.sql.views import views

_DESCRIPTION = "The history and the state of Kafka's consumer offsets, read from __consumer_offsets by offsetlake"


def dbt_sources(lake: Lake, schema: CatalogSchema) -> str:
    """Return the YAML of one source, named as the schema, with all tables and views and their columns.

    Raises LakeUnusable if an older program made the lake.
    """
    lake.check_up_to_date()
    head = {"name": schema.schema, "description": _DESCRIPTION, "database": schema.catalog, "schema": schema.schema}
    lines = ["version: 2", "sources:", *_item(2, head), "    tables:"]
    for table in map(definition, TABLES):
        lines += _table(table.name, table.comment, table.column_comments)
    for view in views().values():
        lines += _table(view.name, view.answers, view.columns)
    return "\n".join(lines) + "\n"


def _table(name: str, description: str, columns: Mapping[str, str]) -> Iterator[str]:
    yield from _item(6, {"name": name, "description": description})
    yield "        columns:"
    for column, comment in columns.items():
        yield from _item(10, {"name": column, "description": comment})


def _item(indent: int, fields: Mapping[str, str]) -> Iterator[str]:
    """Return an item of a list; texts are in JSON, which is a form of YAML's double-quoted scalars."""
    for number, (field, text) in enumerate(fields.items()):
        yield f"{' ' * indent}{'  ' if number else '- '}{field}: {json.dumps(text, ensure_ascii=False)}"
