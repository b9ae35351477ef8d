"""Replaces tables in place: all rows in one commit, or the table features that other programs added."""

import json
from collections.abc import Sequence
from typing import Any

from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

from offsetlake.errors import LakeBusy
from offsetlake.lake.definitions import definition
from offsetlake.lake.delta.commits import app_id, rebuilt_scope
from offsetlake.lake.delta.open_tables import NO_HOOKS
from offsetlake.lake.files import committed
from offsetlake.lake.foreign.guard import WRITABLE, foreign_features
from offsetlake.lake.lake import Lake
from offsetlake.util.times import now_ms

# Properties that table features leave in a table that no longer has them.
_PROPERTIES = ("delta.enableRowTracking", "delta.rowTracking", "delta.enableInCommitTimestamps")
_MORE_PROPERTIES = ("delta.inCommitTimestamp", "delta.enableTypeWidening", "clusteringColumns")
_DOMAINS = {"clustering": "delta.clustering", "rowTracking": "delta.rowTracking"}


def replace_table(lake: Lake, table: str, added: Sequence[AddAction], job: str, run_id: int) -> None:
    """Replace all rows of a table by new files, and its schema and properties by its definition, in one commit.

    Does nothing if this run already did. Afterwards the table has no checks: call `add_checks`.
    """
    table_definition = definition(table)
    if committed(lake, table, job, run_id):
        return
    properties = lake.properties(job, run_id, rebuilt_scope(None))

    def overwrite(target: DeltaTable) -> None:
        create_table_with_add_actions(
            target.table_uri,
            Schema(table_definition.fields()),
            [*added],
            mode="overwrite",
            name=table_definition.name,
            description=table_definition.comment,
            configuration=table_definition.properties,
            commit_properties=properties,
            post_commithook_properties=NO_HOOKS,
        )

    with lake.open_tables() as tables:
        tables.write(table, overwrite, properties)


def take_features_away(lake: Lake, table: str) -> set[str]:
    """Drop the table features that deltalake cannot write, if another program added some; return them.

    No row changes. deltalake cannot drop features, and Spark cannot drop all of them, so this function writes the
    commit itself, as atomically as they do. Raises LakeBusy if another program commits this version.
    """
    unknown = foreign_features(lake, table)
    if not unknown:
        return unknown
    version = lake.without_rows(table).version() + 1
    content = "".join(f"{json.dumps(action)}\n" for action in _dropping(lake, table, unknown))
    with lake.location.errors():
        log = lake.table_location(table).child("_delta_log")
        if not log.create(f"{version:020}.json", content.encode()):
            raise LakeBusy(f"another program is writing to table {table} of {lake.location}: run the command again")
    lake.close_table(table)
    return unknown


def _dropping(lake: Lake, table: str, unknown: set[str]) -> list[dict[str, Any]]:
    """Return the actions of a commit that drops table features with their properties and domains."""
    target = lake.without_rows(table)
    protocol, metadata = target.protocol(), target.metadata()
    readers, writers = (
        [feature for feature in features or () if feature in WRITABLE]
        for features in (protocol.reader_features, protocol.writer_features)
    )
    read = {"minReaderVersion": 3, "readerFeatures": readers} if readers else {}
    kept = {k: v for k, v in metadata.configuration.items() if not k.startswith((*_PROPERTIES, *_MORE_PROPERTIES))}
    return [
        {"commitInfo": {"timestamp": now_ms(), "operation": "DROP FEATURE", "engineInfo": "offsetlake"}},
        {"txn": {"appId": app_id("features"), "version": target.version() + 1}},
        *(
            {"domainMetadata": {"domain": domain, "configuration": "", "removed": True}}
            for feature, domain in _DOMAINS.items()
            if feature in unknown
        ),
        {
            "metaData": {
                "id": metadata.id,
                "name": metadata.name,
                "description": metadata.description,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": target.schema().to_json(),
                "partitionColumns": metadata.partition_columns,
                "configuration": kept,
                "createdTime": metadata.created_time,
            }
        },
        {
            "protocol": {
                "minReaderVersion": min(protocol.min_reader_version, 2),
                "minWriterVersion": 7,
                "writerFeatures": writers,
                **read,
            }
        },
    ]
