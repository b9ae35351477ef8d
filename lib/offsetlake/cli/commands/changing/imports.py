"""`offsetlake import`: takes over offsets from a file or from ZooKeeper."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from offsetlake.cli.commands.changing.changes import ExecuteOption
from offsetlake.cli.commands.changing.plans import ALTERATIONS_SHOWN, change_offsets
from offsetlake.cli.commands.completion import complete_group
from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import CHANGES, FORMAT, LAKE_AND_LOG, ZooKeeperConfigOption, command
from offsetlake.cli.output import write_note
from offsetlake.cli.progress import Progress
from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.log.cluster.admin_client import cluster_admin
from offsetlake.pipeline.changes.alterations import Strategy
from offsetlake.pipeline.changes.import_offsets import plan_import
from offsetlake.pipeline.snapshot_files import offsets_of_file
from offsetlake.util.amounts import noun
from offsetlake.util.extras import require
from offsetlake.util.properties import read_properties
from offsetlake.util.times import now_ms
from offsetlake.zookeeper.address import SCHEME, SETTINGS, ZooKeeperAddress

MAX_REPORTED_ZNODES = 20


@command(
    CHANGES,
    FORMAT | LAKE_AND_LOG,
    "offsetlake snapshot moved.parquet --lake example/lake",
    "offsetlake import moved.parquet --lake example/lake",
    "offsetlake import moved.parquet 'billing*' --lake example/lake --execute",
    "offsetlake import zookeeper://zookeeper-1:2181/kafka --lake /lakes/prod --bootstrap broker-1:9092",
)
def import_(
    context: CommandContext,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|zookeeper://HOST:PORT[,...][/CHROOT]",
            help="A file of `snapshot` (.parquet, .arrow, .jsonl or .csv), or the ZooKeeper of the consumers.",
        ),
    ],
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="[PATTERN]",
            autocompletion=complete_group,
            help="A group, or a shell pattern of groups.",
            show_default=False,
        ),
    ] = "*",
    zookeeper_config: ZooKeeperConfigOption = None,
    execute: ExecuteOption = False,
) -> None:
    """Take over offsets from a file, or those that consumers of Kafka 0.8 to 2.x store in ZooKeeper.

    Groups with active consumers, here or in ZooKeeper, are refused: stop them first. Log start and end offsets, to
    which offsets are limited, and unknown topics are known only with --bootstrap.

    A CSV file has the lines group,topic,partition,offset, or a header with these names in any order; committed_offset
    is one for offset. Other columns are refused, except those of `offsetlake offsets`: a note names those as ignored.
    """
    if source.startswith(SCHEME):
        settings = {} if zookeeper_config is None else read_properties(zookeeper_config, SETTINGS)
        address = ZooKeeperAddress.parse(source, settings)
        evidence, rows = str(address), _of_zookeeper(address, pattern)
    elif zookeeper_config is not None:
        raise BadRequest(f"--zookeeper-config is for addresses of ZooKeeper: {source} does not begin with {SCHEME}.")
    else:
        found = offsets_of_file(Path(source), pattern, _note_ignored)
        evidence, rows = source, found.append_column("reason", pa.nulls(found.num_rows, pa.string()))
    now = now_ms()

    def plan(lake: Lake) -> pa.Table:
        connection = context.log.connection
        with nullcontext() if connection is None else cluster_admin(connection) as admin:
            return plan_import(lake, rows, Strategy("import", evidence), admin, now)

    change_offsets(context, "import", "alterations", plan, ALTERATIONS_SHOWN, execute=execute)


def _note_ignored(columns: Sequence[str]) -> None:
    write_note(f"Ignored {noun(len(columns), 'column')}: {', '.join(columns)}.")


def _of_zookeeper(address: ZooKeeperAddress, pattern: str) -> pa.Table:
    """Return the offsets that ZooKeeper contains, and write a note about each znode that is no offset."""
    require("zookeeper")
    from offsetlake.zookeeper.client import connected  # noqa: PLC0415 - of an extra
    from offsetlake.zookeeper.consumers import read_offsets  # noqa: PLC0415

    with Progress() as progress, connected(address) as client:
        progress.say(f"reading offsets from {address}")
        offsets = read_offsets(client, pattern, lambda count: progress.say(f"reading offsets: {count:,}"))
    for problem in offsets.problems[:MAX_REPORTED_ZNODES]:
        write_note(f"Ignored: {problem}.")
    if (more := len(offsets.problems) - MAX_REPORTED_ZNODES) > 0:
        write_note(f"Ignored: {more:,} more {noun(more, 'znode')}.")
    return offsets.rows
