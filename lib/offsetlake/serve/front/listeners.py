"""The listeners that this process registers: those of the brokers that use its security protocol."""

from collections.abc import Mapping, Sequence

from offsetlake.errors import LogUnavailable, Refused
from offsetlake.serve.front.any_node import AnyNode
from offsetlake.serve.front.metadata.cluster import Cluster
from offsetlake.serve.protocol.encoding import Values

DESCRIBE_CONFIGS = 32
PROTOCOL_NUMBERS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_BROKER_RESOURCE = 4
_KEYS = (
    "advertised.listeners",
    "listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
)


async def listener_names(cluster: Cluster, protocol: str) -> list[str]:
    """Return the names of the listeners of brokers with a security protocol.

    Raises:
        Refused: The brokers use another protocol among themselves, or do not describe their listeners.
        LogUnavailable: No broker answers.
    """
    return matching(await _configuration(cluster), protocol)


def matching(settings: Mapping[str, str | None], protocol: str) -> list[str]:
    """Return the listener names in the settings of a broker; raise Refused as `listener_names`."""
    protocols = dict(_pairs(settings.get("listener.security.protocol.map")))
    advertised = settings.get("advertised.listeners") or settings.get("listeners") or ""
    names = [listener.partition("://")[0].strip() for listener in advertised.split(",")]
    between = (
        settings.get("inter.broker.listener.name") or settings.get("security.inter.broker.protocol") or "PLAINTEXT"
    )
    found = [name for name in names if protocols.get(name, name) == protocol]
    if between not in found:
        raise Refused(
            f"Brokers of the cluster connect to each other over the listener {between} with "
            f"{protocols.get(between, between)}, but this process listens with {protocol}: they could not reach it. "
            "Configure TLS (tls_certificate) and authentication (credentials) as that listener has them."
        )
    return found


def registered(names: Sequence[str], protocol: str, address: tuple[str, int]) -> list[Values]:
    """Return the listeners of a registration."""
    host, port = address
    number = PROTOCOL_NUMBERS[protocol]
    return [{"name": name, "host": host, "port": port, "security_protocol": number} for name in names]


async def _configuration(cluster: Cluster) -> dict[str, str | None]:
    reasons = "no broker is known"
    for broker in cluster.image.brokers:
        if broker.node_id == cluster.node:
            continue
        resource = {
            "resource_type": _BROKER_RESOURCE,
            "resource_name": str(broker.node_id),
            "configuration_keys": _KEYS,
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
                f"Broker {broker.node_id} does not describe its listeners ({result.error_message}): grant the "
                "principal of this process DESCRIBE_CONFIGS on the cluster."
            )
        return {config.name: config.value for config in result.configs}
    raise LogUnavailable(f"No broker describes its listeners: {reasons}.")


def _pairs(text: str | None) -> list[tuple[str, str]]:
    pairs = (pair.partition(":") for pair in (text or "").split(",") if pair)
    return [(name.strip(), protocol.strip()) for name, _, protocol in pairs]
