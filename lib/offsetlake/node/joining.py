"""How a process joins a cluster as a broker, and the node id that it may use."""

from pathlib import Path

from offsetlake.errors import Refused
from offsetlake.kafka.error_codes import NONE
from offsetlake.node.any_node import VersionUnsupported
from offsetlake.node.controllers import Controllers
from offsetlake.node.identity import Identity
from offsetlake.node.listeners import listener_names, registered
from offsetlake.node.metadata.cluster import NO_NODE, Cluster
from offsetlake.node.registration import Registration
from offsetlake.serve.protocol.api_keys import DESCRIBE_CLUSTER
from offsetlake.serve.protocol.topics import INTERNAL
from offsetlake.serve.settings import Settings

_FENCED_SINCE = 2  # version of DescribeCluster with fenced brokers


def cluster_of(settings: Settings) -> Cluster | None:
    """Return the cluster whose broker this process is to be, or whose share consumers it serves; None without one.

    Raises:
        BadRequest: A setting cannot be used.
    """
    if settings.cluster is None:
        return None
    node = NO_NODE if settings.node_id is None else settings.node_id
    return Cluster(settings.cluster, settings.metadata_max_age_ms, node)


async def join(
    cluster: Cluster, identity: Identity, protocol: str, address: tuple[str, int], *, cordoned: bool = False
) -> Registration:
    """Register this process and wait until the controller accepts it as an active broker.

    Args:
        cluster: The cluster, whose metadata has been read.
        identity: The broker.
        protocol: The security protocol of the listener of this process.
        address: The address at which clients and brokers reach this process.
        cordoned: Whether the controller is to place no replicas of new partitions here.

    Raises:
        Refused: The cluster does not accept this process.
        LogMismatch: The log belongs to another broker or topic.
        LogUnavailable: No broker answers.
    """
    identity.check(cluster.image.cluster_id, cluster.node, cluster.image.id_of(INTERNAL))
    names = await listener_names(cluster, protocol)
    listeners = registered(names, protocol, address)
    registration = Registration(cluster.connection, cluster.addresses, identity, listeners, cordoned=cordoned)
    registration.start()
    try:
        await registration.registered()
    except BaseException:
        registration.stop()
        raise
    return registration


def controllers_of(cluster: Cluster) -> Controllers:
    """Return the controllers of a cluster."""
    return Controllers(cluster.connection, cluster.send)


async def new_identity(cluster: Cluster, folder: Path) -> Identity:
    """Return the identity of a log folder, which is created if no broker of the cluster has the node id.

    Raises:
        Refused: The node id is in use, or the cluster has no `__consumer_offsets` yet.
        LogMismatch: The log belongs to another broker.
    """
    image, node = cluster.image, cluster.node
    if not image.partitions(INTERNAL):
        raise Refused("The cluster has no topic __consumer_offsets yet: it is created when a first group is used.")
    identity = Identity.read(folder)
    if identity is None:
        await _check_unused(cluster)
        placements = [image.placement(INTERNAL, number) for number in range(image.partitions(INTERNAL))]
        replicas = [[*placement.replicas] for placement in placements]
        identity = Identity.new(image.cluster_id or "", node, image.id_of(INTERNAL), replicas)
    identity.check(image.cluster_id, node, image.id_of(INTERNAL))
    return identity


async def _check_unused(cluster: Cluster) -> None:
    """Raise Refused if a broker has the node id, even one that is not alive."""
    node, image = cluster.node, cluster.image
    values = {"include_fenced_brokers": True, "endpoint_type": 1, "include_cluster_authorized_operations": False}
    try:
        answer = (await cluster.send(DESCRIBE_CLUSTER, range(_FENCED_SINCE, _FENCED_SINCE + 1), values)).entity()
    except VersionUnsupported as failure:
        raise Refused(
            f"The brokers do not support DescribeCluster version {_FENCED_SINCE}, which names brokers that are not "
            "alive: Kafka 4.0 or later is required."
        ) from failure
    if answer.error_code != NONE:
        raise Refused(f"DescribeCluster failed with the error code {int(answer.error_code)}.")
    used = {broker.broker_id for broker in answer.brokers} | {broker.node_id for broker in image.brokers}
    if node in used or image.encodings_with(node):
        raise Refused(
            f"The node id {node} is used by a broker of the cluster, or was: choose another one (--node-id). The log "
            "folder of that broker, if it is one of this process, must be used instead of this one."
        )
