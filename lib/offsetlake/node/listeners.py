"""The listeners that this process registers: those of the brokers that use its security protocol."""

from collections.abc import Mapping, Sequence

from offsetlake.errors import Refused
from offsetlake.node.broker_settings import broker_settings
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.serve.protocol.encoding import Values

PROTOCOL_NUMBERS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
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
        Refused: The brokers use another protocol among themselves, or do not describe their settings.
        LogUnavailable: No broker answers.
    """
    return matching(await broker_settings(cluster, _KEYS), protocol)


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


def _pairs(text: str | None) -> list[tuple[str, str]]:
    pairs = (pair.partition(":") for pair in (text or "").split(",") if pair)
    return [(name.strip(), protocol.strip()) for name, _, protocol in pairs]
