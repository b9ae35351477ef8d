"""DescribeConfigs in front of a cluster: this process knows only its own settings, which tools request from it.

Whatever else a request names is relayed to a broker.
"""

from collections.abc import Callable, Iterator
from typing import Any

from offsetlake.kafka.error_codes import UNSUPPORTED_VERSION
from offsetlake.node.forwarding import Forwarding
from offsetlake.serve.apis.node_configs import DescribedConfigs, NodeConfigs, Setting, requested_resources
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.security import Security
from offsetlake.serve.protocol.api_keys import DESCRIBE_CONFIGS
from offsetlake.serve.protocol.encoding import Values
from offsetlake.serve.protocol.schemas import response_schema
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.settings import Settings

_OF_SHARE_GROUPS = ".share."
_OF_BROKERS = ("auto.create.topics.enable", "transaction.max.timeout.ms", "transactional.id.expiration.ms")


class ConfigsInCluster(NodeConfigs):
    """Answers DescribeConfigs as a node of a cluster."""

    def __init__(
        self,
        settings: Settings,
        security: Security,
        topics: Topics,
        address: Callable[[], tuple[str, int]],
        forwarding: Forwarding,
    ) -> None:
        super().__init__(settings, security, topics, address)
        self._forwarding = forwarding

    async def describe_in_cluster(self, request: Any, context: RequestContext) -> Values | bytes:
        """Answer DescribeConfigs.

        Raises:
            LogUnavailable: No broker answers a request that is relayed.
        """
        resources = requested_resources(request)
        others = [each for each in resources if not self.is_this_node(each)]
        if not others or not self._forwarding.relays:
            return self.describe(request, context)
        version, values = context.version, _values(request) | {"resources": [_values(each) for each in others]}
        response = await self._forwarding.relay(DESCRIBE_CONFIGS, version, values)
        if len(others) == len(resources):
            return response_schema(DESCRIBE_CONFIGS, version)[1] + response.body
        relayed = [_values(result) for result in response.entity().results]
        own = [each for each in resources if self.is_this_node(each)]
        return {"results": [*(self.result(each, request, context) for each in own), *relayed]}

    def described(self, resource: Any, context: RequestContext) -> DescribedConfigs:
        """Return the settings of this node, or that those of others are not described."""
        if self.is_this_node(resource):
            return super().described(resource, context)
        reason = "This node cannot relay the request, because its clients log in: send it to another broker."
        return DescribedConfigs({}, UNSUPPORTED_VERSION, reason)

    def own_settings(self) -> Iterator[tuple[str, Setting]]:
        """Yield the settings of this process, without those of the brokers."""
        for name, setting in super().own_settings():
            if name not in _OF_BROKERS and _OF_SHARE_GROUPS not in name:
                yield name, setting


def _values(entity: Any) -> dict[str, Any]:
    """Return the fields of a request or a response that was read, with those of nested ones."""
    fields: dict[str, Any] = entity._asdict()
    return {
        name: [_values(each) if hasattr(each, "_asdict") else each for each in value]
        if isinstance(value, tuple)
        else value
        for name, value in fields.items()
    }
