"""`offsetlake export`: writes offsets to ZooKeeper."""

from typing import Annotated

import typer

from offsetlake.cli.commands.changing.changes import ExecuteOption
from offsetlake.cli.commands.completion import complete_group
from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import CHANGES, FORMAT, LAKE_AND_LOG, ZooKeeperConfigOption, command
from offsetlake.util.extras import requires


@command(
    CHANGES,
    FORMAT | LAKE_AND_LOG,
    "offsetlake export zookeeper://zookeeper-1:2181/kafka 'billing-*' --lake /lakes/prod",
    "offsetlake export zookeeper://zookeeper-1:2181/kafka 'billing-*' --lake /lakes/prod --execute",
    "offsetlake export zookeeper://zookeeper-1:2181/kafka --undo export-20260131T140500.000Z.jsonl --execute",
)
@requires("zookeeper")
def export(
    context: CommandContext,
    target: Annotated[
        str,
        typer.Argument(metavar="zookeeper://HOST:PORT[,...][/CHROOT]", help="The ZooKeeper of the consumers."),
    ],
    pattern: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATTERN]",
            autocompletion=complete_group,
            help="A group, or a shell pattern of groups. [dim]default: *[/]",
            show_default=False,
        ),
    ] = None,
    zookeeper_config: ZooKeeperConfigOption = None,
    undo: Annotated[
        str | None,
        typer.Option("--undo", metavar="FILE", help="Restore what an export replaced: the file that it has written."),
    ] = None,
    execute: ExecuteOption = False,
) -> None:
    """Write committed offsets to ZooKeeper, from where consumers of Kafka 0.8 to 2.x read them.

    Groups with active consumers, here or in ZooKeeper, are refused: stop them first. All offsets of a group are written
    at once, and only to znodes that nothing changed meanwhile. What they contained is saved in a file in the current
    folder before.
    """
    from offsetlake.cli.commands.changing.zookeeper_export import export_offsets  # noqa: PLC0415 - of an extra

    export_offsets(context, target, pattern, zookeeper_config, undo, execute=execute)
