"""Entry point of the serving process: `python -m offsetlake.cli.serve_process SETTINGS`, with the settings as JSON.

`offsetlake serve` starts it. It composes the process of the core and of the features that the settings ask for, whose
modules are imported only then.
"""

# ruff: noqa: PLC0415
import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from offsetlake.errors import BadRequest, OffsetlakeError
from offsetlake.node.identity import with_adopted_log
from offsetlake.serve.core import Core, Surroundings
from offsetlake.serve.net.security import Security
from offsetlake.serve.protocol.api_keys import BROKER_VERSIONS, VERSIONS
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.server import serve
from offsetlake.serve.settings import Settings, with_secrets
from offsetlake.serve.standalone import Standalone
from offsetlake.serve.storage.offset_store import LOG_STORE, OffsetStore
from offsetlake.serve.storage.store import Store
from offsetlake.serve.writes.rounds import Writes
from offsetlake.share.share_groups import ShareConsumers, ShareGroups
from offsetlake.util.escaping import visible
from offsetlake.util.log_lines import log_to_stderr
from offsetlake.util.memory_limit import choose_allocators
from offsetlake.util.processes import open_standard_streams

if TYPE_CHECKING:
    from offsetlake.node.leadership import Leadership
    from offsetlake.serve.feature import Feature


def main() -> int:
    """Serve until the process is stopped, and return the exit code."""
    choose_allocators()  # for child processes, which inherit the environment
    open_standard_streams()
    settings = with_secrets(Settings.from_json(sys.argv[1]), os.environ)
    log_to_stderr(settings.log_format)
    try:
        run(settings)
    except OffsetlakeError as error:
        sys.stderr.write(f"error: {visible(str(error))}\n")
        return error.exit_code
    return 0


def run(settings: Settings) -> None:
    """Serve until the process is stopped; raise errors as `offsetlake.serve.server.serve`."""
    serve(with_adopted_log(settings), composed)


def composed(settings: Settings, security: Security, loop: asyncio.AbstractEventLoop) -> Core:
    """Return the core of a serving process, with its features.

    Raises:
        BadRequest: Settings of features do not fit together.
    """
    leadership = _leadership(settings)
    core = Core(settings, security, loop, _surroundings(settings, leadership))
    core.add(_in_cluster(core, leadership))
    groups = ShareGroups(core)
    core.add([groups])
    if leadership is not None and settings.share is not None:
        core.add([ShareConsumers(core, leadership.cluster, groups, settings.share)])
    core.add(_stores_and_listeners(core))
    return core


def _leadership(settings: Settings) -> "Leadership | None":
    """Return the cluster, and what this process leads there; None without a cluster."""
    if settings.cluster is None:
        return None
    from offsetlake.node.joining import cluster_of
    from offsetlake.node.leadership import Leadership

    cluster = cluster_of(settings)
    return None if cluster is None else Leadership(cluster)


def _surroundings(settings: Settings, leadership: "Leadership | None") -> Surroundings:
    """Return what the core is told about its surroundings: of the cluster, and where offsets are stored."""
    offset_store = _offset_store(settings)
    if leadership is None:
        topics = None if settings.topics is None else {name.encode(): count for name, count in settings.topics.items()}
        return Surroundings(Topics(topics, settings.log_partitions), VERSIONS, offset_store=offset_store)
    from offsetlake.node.metadata.topics import ClusterTopics, LedTopics

    cluster = leadership.cluster

    def cluster_id() -> str | None:
        return cluster.image.cluster_id

    if settings.node_id is None:
        return Surroundings(LedTopics(cluster), VERSIONS, cluster_id, offset_store=offset_store)
    return Surroundings(ClusterTopics(cluster), BROKER_VERSIONS, cluster_id, leadership.epoch, offset_store)


def _offset_store(settings: Settings) -> Callable[[Store, Writes], OffsetStore]:
    """Return what makes the store of offsets: the log, or ZooKeeper."""
    zookeeper = settings.zookeeper
    if zookeeper is None or settings.store == "log":
        return lambda _store, _writes: LOG_STORE
    from offsetlake.zookeeper.serving.zookeeper_store import ZooKeeperStore

    return lambda store, writes: ZooKeeperStore(zookeeper, Path(settings.log), store, writes, settings.log_partitions)


def _in_cluster(core: Core, leadership: "Leadership | None") -> "Iterator[Feature]":
    """Yield what this process is: the only broker of its clients, or a node of a cluster."""
    settings = core.settings
    if settings.returning and (leadership is None or settings.node_id is None):
        raise BadRequest("Only a node of a cluster can give its log back: specify --cluster and --node-id.")
    if leadership is None:
        yield Standalone(core)
        return
    from offsetlake.node.node import ClusterMetadata, Node

    yield ClusterMetadata(core, leadership.cluster)
    if settings.node_id is None:
        yield Standalone(core)
    elif settings.returning:
        from offsetlake.node.returning_node import ReturningNode

        yield ReturningNode(core, leadership)
    else:
        yield Node(core, leadership)


def _stores_and_listeners(core: Core) -> "Iterator[Feature]":
    """Yield commits to ZooKeeper, and HTTP."""
    settings = core.settings
    if settings.zookeeper is not None:
        from offsetlake.zookeeper.serving.dual_commits import DualCommits
        from offsetlake.zookeeper.serving.zookeeper_commits import ZooKeeperCommits

        if isinstance(core.offset_store, DualCommits):  # ZooKeeper is the store
            yield ZooKeeperCommits(core, core.offset_store)
        else:
            commits = DualCommits(settings.zookeeper, core.folder, core.store, core.writes.watermarks)
            yield ZooKeeperCommits(core, commits)
    if settings.http is not None:
        from offsetlake.web.http.listener import Http

        yield Http(core, *settings.http)


if __name__ == "__main__":
    sys.exit(main())
