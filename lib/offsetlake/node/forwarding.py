"""Requests of clients that other nodes of the cluster answer, and the features of the cluster.

Clients send requests such as CreateTopics to any broker, which may be this process. As a broker does, it forwards those
that controllers answer in an Envelope, with the principal and the address of the client, by which the controller
authorizes them (KIP-590). Requests that any broker answers, such as DescribeConfigs, are relayed to a broker. That is
possible only if clients do not log in, because the broker authorizes them as those of this process.

If a controller does not answer in time, the request is sent to the next one, and may be executed twice: a client that
creates a topic may get TOPIC_ALREADY_EXISTS. A broker repeats such requests, too (`NodeToControllerRequestThread`).
"""

import asyncio
import ipaddress
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kio.schema.default_principal_data.v0 import DefaultPrincipalData

from offsetlake.errors import LogUnavailable, Refused
from offsetlake.kafka.error_codes import NONE
from offsetlake.node.any_node import AnyNode
from offsetlake.node.joining import controllers_of
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.node.registration import KNOWN_FEATURES
from offsetlake.node.requests import NodeResponse
from offsetlake.serve.net.client import Client
from offsetlake.serve.protocol.api_keys import API_VERSIONS, FORWARDED, RELAYED, VERSIONS
from offsetlake.serve.protocol.encoding import Values, encoded

if TYPE_CHECKING:
    from collections.abc import Mapping

ENVELOPE = 58
NO_FEATURES: Values = {"supported_features": [], "finalized_features": [], "finalized_features_epoch": -1}
"""What ApiVersions contains about features before those of the cluster are known."""

_SOFTWARE = {"client_software_name": "offsetlake", "client_software_version": "1"}
_CORRELATION_BYTES = 4
_PRINCIPAL_VERSION = b"\0\0"


class Forwarding:
    """Forwards requests of clients to nodes of `cluster`.

    | Field    | Description |
    |----------|-------------|
    | relays   | Whether requests that any broker answers are relayed |
    | versions | The versions of the APIs that are forwarded or relayed, by API key |
    | features | The features that this process states: those of the cluster, as in ApiVersions |
    """

    def __init__(self, cluster: Cluster, *, relays: bool) -> None:
        self.cluster, self.relays = cluster, relays
        self._controllers, self._nodes = controllers_of(cluster), AnyNode(cluster.connection)
        self.versions: Mapping[int, range] = {}
        self.features = NO_FEATURES

    async def load(self) -> None:
        """Find out which versions the controllers and the brokers support, and the features of the cluster.

        Raises:
            LogUnavailable, Refused: The cluster does not answer.
        """
        found = await self._controllers.send(API_VERSIONS, 4, _SOFTWARE)
        versions = {api.api_key: api for api in found.api_keys if api.api_key in FORWARDED}
        answer = (await self.cluster.send(API_VERSIONS, range(4, 5), _SOFTWARE)).entity()
        if self.relays:
            versions |= {api.api_key: api for api in answer.api_keys if api.api_key in RELAYED}
        self.features = _features(answer)
        self.versions = {
            key: range(api.min_version, api.max_version + 1) for key, api in versions.items() if key not in VERSIONS
        }

    async def run(self) -> None:
        """Load again whenever the metadata may be outdated, until the task is cancelled: a cluster can be upgraded."""
        while True:
            await asyncio.sleep(self.cluster.max_age_seconds)
            with suppress(LogUnavailable, Refused):
                await self.load()

    def takes(self, api: int, version: int) -> bool:
        """Check whether a request is forwarded or relayed."""
        return version in self.versions.get(api, ())

    async def answer(self, api: int, frame: bytes, client: Client) -> bytes:
        """Return the response to a request, without its correlation id.

        Raises:
            LogUnavailable: The cluster does not answer.
        """
        if api in RELAYED:
            return await self._nodes.send_frame(self.cluster.addresses(), frame)
        address = ipaddress.ip_address(client.host.removeprefix("/").strip("[]"))
        values = {
            "request_data": frame,
            "request_principal": _principal(client.principal),
            "client_host_address": address.packed,
        }
        answer = await self._controllers.send(ENVELOPE, 0, values)
        if answer.error_code != NONE or answer.response_data is None:
            raise LogUnavailable(f"The controller refused an Envelope with the error code {int(answer.error_code)}.")
        return bytes(answer.response_data[_CORRELATION_BYTES:])

    async def relay(self, api: int, version: int, values: Values) -> NodeResponse:
        """Send a request in a version to a broker.

        Raises:
            LogUnavailable: No broker answers.
        """
        return await self._nodes.send(self.cluster.addresses(), api, range(version, version + 1), values)

    def close(self) -> None:
        """Close the connections."""
        self._controllers.close()
        self._nodes.close()


def _features(answer: Any) -> Values:
    """Return the features in a response to ApiVersions; supported are those with which this process registers."""
    return {
        "supported_features": [
            {"name": feature.name, "min_version": feature.min_version, "max_version": feature.max_version}
            for feature in answer.supported_features
            if feature.name in KNOWN_FEATURES
        ],
        "finalized_features": [
            {
                "name": feature.name,
                "min_version_level": feature.min_version_level,
                "max_version_level": feature.max_version_level,
            }
            for feature in answer.finalized_features
        ],
        "finalized_features_epoch": answer.finalized_features_epoch,
    }


def _principal(principal: str) -> bytes:
    """Return a principal as `DefaultKafkaPrincipalBuilder` encodes it."""
    kind, _, name = principal.partition(":")
    return _PRINCIPAL_VERSION + encoded(
        DefaultPrincipalData, {"type_": kind, "name": name, "token_authenticated": False}
    )
