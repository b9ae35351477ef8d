"""Statements that register the lakes of many clusters in the catalog of another engine, and views over all of them."""

import re
from collections.abc import Iterable, Iterator, Mapping

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.catalogs import (
    CatalogSchema,
    Dialect,
    catalog_statements,
    create_view,
    described,
    quotation_mark,
)
from offsetlake.lake.sql.views import Described, View

CLUSTER = {"cluster": "Name of the cluster"}
"""The first column of the views over all lakes, with its meaning."""


def fleet_statements(lakes: Mapping[str, Lake], schema: CatalogSchema, dialect: Dialect) -> Iterator[str]:
    """Yield the statements of a dialect that create a schema for each lake, and one with views over all lakes.

    Args:
        lakes: The lakes by the names of their clusters.
        schema: The schema of the views over all lakes. Those of the lakes are `lake_schemas`.
        dialect: The engine.

    Raises:
        BadRequest: Two clusters would have the same schema.
        LakeUnusable: An older program made a lake.

    """
    schemas = lake_schemas(schema, lakes)
    for name, lake in lakes.items():
        yield from catalog_statements(lake, schemas[name], dialect)
    quote = quotation_mark(dialect)
    yield f"CREATE SCHEMA IF NOT EXISTS {schema.quoted(quote)}"
    for view in described():
        yield from create_view(schema, with_cluster(view), _union(view, schemas, quote), dialect)


def with_cluster(view: View | Described) -> Described:
    """Return the description of the view over all lakes of a table or a view."""
    return Described(view.name, view.answers, {**CLUSTER, **view.columns})


def lake_schemas(schema: CatalogSchema, names: Iterable[str]) -> dict[str, CatalogSchema]:
    """Return the schema of each lake: with the name of the cluster, in which dots and hyphens become underscores.

    Raises BadRequest if two clusters would have the same schema, because catalogs ignore the case of names.
    """
    schemas: dict[str, CatalogSchema] = {}
    first: dict[str, str] = {}
    for name in names:
        own = f"{schema.schema}_{re.sub('[.-]', '_', name)}"
        if (other := first.setdefault(own.casefold(), name)) != name:
            raise BadRequest(f"The clusters {other} and {name} would have the same schema, {own}: rename one of them.")
        schemas[name] = CatalogSchema(schema.catalog, own)
    return schemas


def _union(view: View | Described, schemas: Mapping[str, CatalogSchema], quote: str) -> str:
    columns = ", ".join(f"{quote}{column}{quote}" for column in view.columns)
    return "\nUNION ALL\n".join(
        f"SELECT '{name}' AS cluster, {columns} FROM {own.quoted(quote)}.{view.name}"  # noqa: S608
        for name, own in schemas.items()
    )
