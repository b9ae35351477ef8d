"""`offsetlake adopt` and `return`: move `__consumer_offsets` of a cluster to this node, and back to its brokers."""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import JOBS, LAKE, KafkaConfigOption, Options, command
from offsetlake.cli.commands.serving.serve import (
    AclOption,
    AdvertisedOption,
    ClusterOption,
    CredentialsOption,
    KafkaOption,
    NodeIdOption,
    OpenToAnyoneOption,
    OwnLogOption,
    TlsCertificateOption,
    TlsClientCaOption,
    TlsKeyOption,
)
from offsetlake.cli.commands.serving.serve_settings import with_options
from offsetlake.cli.output import write_note
from offsetlake.errors import LakeUnusable, Refused, TableChanged
from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import compacted_positions
from offsetlake.log.writer.ownership import CLUSTER_FILE
from offsetlake.pipeline.changes.handover import recorded
from offsetlake.serve.settings import Settings
from offsetlake.util.extras import requires

_LISTENER: Options = {
    "cluster": ClusterOption,
    "node_id": NodeIdOption,
    "kafka": KafkaOption,
    "advertised": AdvertisedOption,
    "tls_certificate": TlsCertificateOption,
    "tls_key": TlsKeyOption,
    "tls_client_ca": TlsClientCaOption,
    "credentials": CredentialsOption,
    "acl": AclOption,
    "open_to_anyone": OpenToAnyoneOption,
}
"""The options that the commands share with `offsetlake serve`: how the node is registered and who may connect."""

_OPTIONS: Options = {"lake": LAKE["lake"], "log": OwnLogOption, "kafka_config": KafkaConfigOption, **LAKE, **_LISTENER}
_EXAMPLE = (
    "--lake /lakes/new --log /lakes/new-log --cluster broker-1:9092 --node-id 1000 "
    "--kafka 0.0.0.0:9092 --advertised offsets.example:9092 --open-to-anyone"
)
_NOTHING_CHANGED = "Nothing was changed: with --execute, all groups in these partitions are moved together."
_ExecuteOption = Annotated[
    bool, typer.Option("--execute", help="Move the partitions. Without this option, only show the plan.")
]


@command(JOBS, _OPTIONS, f"offsetlake adopt {_EXAMPLE}")
@requires("serve")
def adopt(
    context: CommandContext,
    execute: _ExecuteOption = False,
    end_unserved_groups: Annotated[
        bool,
        typer.Option(
            "--end-unserved-groups",
            help="Adopt although consumers of share groups or streams groups run. They stop with UNSUPPORTED_VERSION "
            "and cannot start before the return.",
        ),
    ] = False,
) -> None:
    """Move all groups of a cluster to this node, which becomes the leader of `__consumer_offsets`: the plan first.

    The partitions are copied from their leaders as a follower copies them. Groups with members keep them. From the move
    until `offsetlake serve` runs with the same options, clients retry: start it at once. An interrupted run is resumed
    by running the command again. `offsetlake return` moves the partitions back.

    Share groups and streams groups are not served from then on. The plan names them, and the command is refused while
    their consumers run.
    """
    from offsetlake.node.handover import adoption, unserved_groups  # noqa: PLC0415 - they take half a second

    context, settings = _of_listener(context)
    if not (Path(settings.log) / CLUSTER_FILE).exists():
        _check_lake(settings.lake)
    rows, unserved = adoption.plan(settings)  # what it refuses creates no lake
    if unserved:
        write_note(
            f"{unserved_groups.described(unserved)}: not served from the adoption to the return. Consumers of these "
            "groups fail with UNSUPPORTED_VERSION."
        )
    if execute:
        if not end_unserved_groups:
            unserved_groups.refuse_running(unserved)
        with _recorded(settings, "adopt") as counts:
            rows = adoption.adopt(settings)
            counts["log_partitions"] = len(rows)
        context.write(pa.Table.from_pylist(rows))
        write_note("All partitions were copied. Start `offsetlake serve` with the same options now.")
    else:
        context.write(pa.Table.from_pylist(rows))
        write_note(_NOTHING_CHANGED)


@command(JOBS, _OPTIONS, f"offsetlake return {_EXAMPLE}")
@requires("serve")
def return_(context: CommandContext, execute: _ExecuteOption = False) -> None:
    """Give all groups of a cluster back to its brokers, which copy the log: the plan first.

    Stop `offsetlake serve` before. Until the brokers lead the partitions, clients retry. An interrupted run is resumed
    by running the command again. The node is unregistered at the end.
    """
    from offsetlake.cli import serve_process  # noqa: PLC0415 - its dependencies take half a second
    from offsetlake.node.handover import returning  # noqa: PLC0415

    context, settings = _of_listener(context)
    rows = returning.plan(settings)
    context.write(pa.Table.from_pylist(rows))
    if execute:
        with _recorded_if_possible(settings) as counts:
            serve_process.run(replace(settings, returning=True))
            returning.check_returned(Path(settings.log))  # a signal stops the server without an error
            counts["log_partitions"] = len(rows)
        write_note(
            "All partitions are led by brokers, and this node is unregistered. The log folder is no longer used."
        )
    else:
        write_note(_NOTHING_CHANGED)


def _of_listener(context: CommandContext) -> tuple[CommandContext, Settings]:
    """Return the context without the options of the listener, and the settings of the serving process with them.

    Raises BadRequest if the settings are invalid.
    """
    listener = {name: value for name, value in context.options.items() if name in _LISTENER}
    listener["open_to_anyone"] = "true" if listener["open_to_anyone"] else None
    others = {name: value for name, value in context.options.items() if name not in _LISTENER}
    context = replace(context, options=others)
    return context, with_options(context.settings, "the log of the cluster", listener)


def _recorded(settings: Settings, job: Literal["adopt", "return"]) -> AbstractContextManager[Counter[str]]:
    """Record a command as a run of the lake."""
    node = f"node {settings.node_id} of the cluster at {(settings.cluster or {}).get('bootstrap.servers')}"
    return recorded(settings.lake, job, settings.log, node, write_note)


@contextmanager
def _recorded_if_possible(settings: Settings) -> Iterator[Counter[str]]:
    """Record a return as `_recorded`; a lake that cannot be used does not prevent it, because brokers copy the log."""
    with ExitStack() as stack:
        try:
            counts = stack.enter_context(_recorded(settings, "return"))
        except (LakeUnusable, TableChanged) as error:
            write_note(f"The lake is not used, and the return is not recorded in it: {error}")
            counts = Counter[str]()
        yield counts


def _check_lake(path: str) -> None:
    """Raise Refused if the lake contains offsets of another log."""
    lake = Lake(path)
    if lake.version() and compacted_positions(lake):
        raise Refused(f"The lake {path} contains offsets of another log: use a new lake (--lake).")
