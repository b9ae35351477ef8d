"""The tables and views of a lake as sources of dbt, for a properties file in the folder `models` of a dbt project."""

import json
from collections.abc import Iterable, Iterator, Mapping

from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.catalogs import CatalogSchema, described
from offsetlake.lake.sql.fleet_catalogs import lake_schemas, with_cluster
from offsetlake.lake.sql.views import Described, View

_DESCRIPTION = "The history and the state of Kafka's consumer offsets, read from __consumer_offsets by offsetlake"


def dbt_sources(lake: Lake, schema: CatalogSchema) -> str:
    """Return the YAML of one source, named as the schema, with all tables and views and their columns.

    Raises LakeUnusable if an older program made the lake.
    """
    lake.check_up_to_date()
    return _file(_source(schema, described()))


def dbt_fleet_sources(lakes: Mapping[str, Lake], schema: CatalogSchema) -> str:
    """Return the YAML of a source for each lake, and of one with the views over all lakes.

    Raises BadRequest if two clusters would have the same schema, LakeUnusable if an older program made a lake.
    """
    for lake in lakes.values():
        lake.check_up_to_date()
    lines = [line for own in lake_schemas(schema, lakes).values() for line in _source(own, described())]
    return _file([*lines, *_source(schema, map(with_cluster, described()))])


def _source(schema: CatalogSchema, contents: Iterable[View | Described]) -> Iterator[str]:
    head = {"name": schema.schema, "description": _DESCRIPTION, "database": schema.catalog, "schema": schema.schema}
    yield from _item(2, head)
    yield "    tables:"
    for view in contents:
        yield from _table(view.name, view.answers, view.columns)


def _file(lines: Iterable[str]) -> str:
    return "\n".join(["version: 2", "sources:", *lines]) + "\n"


def _table(name: str, description: str, columns: Mapping[str, str]) -> Iterator[str]:
    yield from _item(6, {"name": name, "description": description})
    yield "        columns:"
    for column, comment in columns.items():
        yield from _item(10, {"name": column, "description": comment})


def _item(indent: int, fields: Mapping[str, str]) -> Iterator[str]:
    """Return an item of a list; texts are in JSON, which is a form of YAML's double-quoted scalars."""
    for number, (field, text) in enumerate(fields.items()):
        yield f"{' ' * indent}{'  ' if number else '- '}{field}: {json.dumps(text, ensure_ascii=False)}"
