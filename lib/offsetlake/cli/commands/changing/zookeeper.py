"""`offsetlake import`: takes over the offsets that consumers have stored in ZooKeeper."""

from contextlib import nullcontext
from typing import Annotated

import pyarrow as pa
import typer

from offsetlake.cli.commands.changing.changes import ExecuteOption
from offsetlake.cli.commands.changing.plans import ALTERATIONS_SHOWN, change_offsets
from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import CHANGES, FORMAT, LAKE_AND_LOG, command
from offsetlake.cli.config import read_properties
from offsetlake.cli.output import write_note
from offsetlake.cli.progress import Progress
from offsetlake.lake.lake import Lake
from offsetlake.log.cluster.admin import ClusterAdmin
from offsetlake.pipeline.changes.alterations import Strategy
from offsetlake.pipeline.changes.take_over import plan_import
from offsetlake.util.times import now_ms
from offsetlake.zookeeper.client import SETTINGS, ZooKeeperAddress, connected
from offsetlake.zookeeper.consumers import read_offsets

MAX_REPORTED_ZNODES = 20


@command(
    CHANGES,
    FORMAT | LAKE_AND_LOG,
    "offsetlake import zookeeper://zookeeper-1:2181/kafka --lake /lakes/prod --bootstrap broker-1:9092",
    "offsetlake import zookeeper://zookeeper-1:2181/kafka 'billing-*' --lake /lakes/prod --bootstrap broker-1:9092 "
    "--execute",
)
def import_(
    context: CommandContext,
    source: Annotated[
        str, typer.Argument(metavar="zookeeper://HOST:PORT[,...][/CHROOT]", help="The ZooKeeper of the consumers.")
    ],
    pattern: Annotated[
        str, typer.Argument(metavar="[PATTERN]", help="A group, or a shell pattern of groups.", show_default=False)
    ] = "*",
    zookeeper_config: Annotated[
        str | None,
        typer.Option(
            "--zookeeper-config", metavar="FILE", help="A properties file with credentials: digest.user, sasl.*, tls.*."
        ),
    ] = None,
    execute: ExecuteOption = False,
) -> None:
    """Take over the offsets that consumers of Kafka 0.8 to 2.x store in ZooKeeper, which is only read.

    Groups with active consumers in ZooKeeper are refused: stop them first. Log start and end offsets, to which offsets
    are limited, and unknown topics are known only with --bootstrap.
    """
    settings = {} if zookeeper_config is None else read_properties(zookeeper_config, SETTINGS)
    address = ZooKeeperAddress.parse(source, settings)
    with Progress() as progress, connected(address) as client:
        progress.say(f"reading offsets from {address}")
        offsets = read_offsets(client, pattern, lambda count: progress.say(f"reading offsets: {count:,}"))
    now = now_ms()

    def plan(lake: Lake) -> pa.Table:
        connection = context.log.connection
        with nullcontext() if connection is None else ClusterAdmin(connection) as admin:
            return plan_import(lake, offsets.rows, Strategy("import", str(address)), admin, now)

    for problem in offsets.problems[:MAX_REPORTED_ZNODES]:
        write_note(f"Ignored: {problem}.")
    if (more := len(offsets.problems) - MAX_REPORTED_ZNODES) > 0:
        write_note(f"Ignored: {more:,} more znodes.")
    change_offsets(context, "import", "alterations", plan, ALTERATIONS_SHOWN, execute=execute)
