"""The settings of the brokers of a cluster."""

from collections.abc import Sequence

from offsetlake.errors import LogUnavailable, Refused
from offsetlake.node.any_node import AnyNode
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.serve.protocol.api_keys import DESCRIBE_CONFIGS

_BROKER_RESOURCE = 4


async def broker_settings(cluster: Cluster, keys: Sequence[str]) -> dict[str, str | None]:
    """Return settings of the first broker that answers, by name.

    Raises:
        Refused: The broker does not describe its settings to this process.
        LogUnavailable: No broker answers.
    """
    reasons = "no broker is known"
    for broker in cluster.image.brokers:
        if broker.node_id == cluster.node:
            continue
        resource = {
            "resource_type": _BROKER_RESOURCE,
            "resource_name": str(broker.node_id),
            "configuration_keys": keys,
        }
        node = AnyNode(cluster.connection)
        try:
            answer = await node.send(
                [(broker.host, broker.port)], DESCRIBE_CONFIGS, range(1, 5), {"resources": [resource]}
            )
        except LogUnavailable as failure:
            reasons = str(failure)
            continue
        finally:
            node.close()
        (result,) = answer.entity().results
        if result.error_code:
            raise Refused(
                f"Broker {broker.node_id} does not describe its settings ({result.error_message}): grant the "
                "principal of this process DESCRIBE_CONFIGS on the cluster."
            )
        return {config.name: config.value for config in result.configs}
    raise LogUnavailable(f"No broker describes its settings: {reasons}.")
