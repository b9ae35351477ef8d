"""Replaces tables in place: all rows in one commit, or the table features that other programs added."""

import json
import os
from collections.abc import Sequence
from typing import Any

from deltalake import Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

from offsetlake.errors import LakeBusy
from offsetlake.lake.commits import app_id, rebuilt
from offsetlake.lake.definitions import definition
from offsetlake.lake.files import committed
from offsetlake.lake.foreign.guard import WRITABLE, foreign_features
from offsetlake.lake.lake import Lake, disk_errors
from offsetlake.util.atomic_files import temporary_of, to_disk
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
    with disk_errors(lake.path):
        create_table_with_add_actions(
            str(lake.table_path(table)),
            Schema(table_definition.fields()),
            [*added],
            mode="overwrite",
            name=table_definition.name,
            description=table_definition.comment,
            configuration=table_definition.properties,
            commit_properties=rebuilt(job, run_id, None),
        )


def take_features_away(lake: Lake, table: str) -> set[str]:
    """Drop the table features that deltalake cannot write, if another program added some; return them.

    No row changes. deltalake cannot drop features, and Spark cannot drop all of them, so this function writes the
    commit itself, as atomically as they do, by a hard link, which fails if the version exists. Raises LakeBusy then.
    """
    unknown = foreign_features(lake, table)
    if not unknown:
        return unknown
    version = lake.delta_table(table).version() + 1
    file = lake.table_path(table) / "_delta_log" / f"{version:020}.json"
    temporary = temporary_of(file)
    with disk_errors(lake.path):
        temporary.write_text("".join(f"{json.dumps(action)}\n" for action in _dropping(lake, table, unknown)))
        to_disk(temporary)
        try:
            os.link(temporary, file)
        except FileExistsError as error:
            raise LakeBusy(
                f"another program is writing to table {table} of {lake.path}: run the command again"
            ) from error
        finally:
            temporary.unlink()
    return unknown


def _dropping(lake: Lake, table: str, unknown: set[str]) -> list[dict[str, Any]]:
    """Return the actions of a commit that drops table features with their properties and domains."""
    target = lake.delta_table(table)
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
