"""DescribeConfigs: the settings of this process as those of a broker, and of the topics.

Settings have the name of the setting of a broker that means the same (`KafkaConfig`, `GroupCoordinatorConfig`). No
client can change them.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from offsetlake.auth.acl import READ
from offsetlake.coordinator.settings import BROKER_NAMES
from offsetlake.kafka.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    GROUP_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from offsetlake.log.writer.appender import SEGMENT_BYTES
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.security import Security, security_protocol
from offsetlake.serve.protocol.encoding import Lazy, Values
from offsetlake.serve.protocol.request_limits import MAX_COMMIT_BATCH_BYTES
from offsetlake.serve.protocol.topics import INTERNAL, Topics, is_valid_name
from offsetlake.serve.settings import Settings
from offsetlake.serve.transactions.coordinator import MAX_TIMEOUT_MS
from offsetlake.serve.transactions.log import TRANSACTIONAL_ID_EXPIRATION_MS
from offsetlake.serve.writes.commit_rules import MAX_METADATA_UNITS

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Types of resources (`ConfigResource.Type`)."""

_BOOLEAN, _STRING, _INT, _LIST = 1, 2, 3, 7  # types of settings (`DescribeConfigsResponse.ConfigType`)
_STATIC_BROKER_CONFIG = 4  # the source of a setting (`DescribeConfigsResponse.ConfigSource`)
_GROUP_NAMES = {
    "consumer.session.timeout.ms": "consumer_session_timeout_ms",
    "consumer.heartbeat.interval.ms": "consumer_heartbeat_interval_ms",
    "share.session.timeout.ms": "share_session_timeout_ms",
    "share.heartbeat.interval.ms": "share_heartbeat_interval_ms",
    "share.record.lock.duration.ms": "share_record_lock_duration_ms",
    "share.auto.offset.reset": "share_auto_offset_reset",
    "share.isolation.level": "share_isolation_level",
}
"""The field of `CoordinatorSettings` by the name of a setting of a group (`GroupConfig`)."""

Setting = bool | int | str | tuple[str, ...]


class DescribedConfigs(NamedTuple):
    """The settings of a resource by name, or why they are not described."""

    settings: Mapping[str, Setting]
    error: int = NONE
    message: str | None = None


class NodeConfigs:
    """Answers DescribeConfigs; `address` returns the advertised host and port."""

    def __init__(
        self, settings: Settings, security: Security, topics: Topics, address: Callable[[], tuple[str, int]]
    ) -> None:
        self._settings, self._security, self._topics, self._address = settings, security, topics, address

    def describe(self, request: Any, context: RequestContext) -> Values:
        """Answer DescribeConfigs."""
        resources = requested_resources(request)
        return {"results": Lazy(len(resources), (self.result(each, request, context) for each in resources))}

    def is_this_node(self, resource: Any) -> bool:
        """Check whether a resource is this process."""
        return resource.resource_type in {BROKER, BROKER_LOGGER} and resource.resource_name == str(self._topics.node)

    def result(self, resource: Any, request: Any, context: RequestContext) -> Values:
        """Return the settings of a resource that a request names, or why they are not described."""
        described, keys = self.described(resource, context), resource.configuration_keys
        with_synonyms = getattr(request, "include_synonyms", False)
        return {
            "error_code": described.error,
            "error_message": described.message,
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "configs": [
                _config(name, setting, with_synonyms=with_synonyms)
                for name, setting in described.settings.items()
                if keys is None or name in keys
            ],
        }

    def described(self, resource: Any, context: RequestContext) -> DescribedConfigs:
        """Return the settings of a resource."""
        if resource.resource_type == TOPIC:
            return self._topic(resource.resource_name, context)
        if resource.resource_type == GROUP:
            if not context.may(READ, resource.resource_name.encode()):
                return DescribedConfigs({}, GROUP_AUTHORIZATION_FAILED)
            coordinator = self._settings.coordinator
            return DescribedConfigs({name: getattr(coordinator, field) for name, field in _GROUP_NAMES.items()})
        if not context.client.access.may_read_log():
            return DescribedConfigs({}, CLUSTER_AUTHORIZATION_FAILED)
        return self._of_nodes(resource)

    def _of_nodes(self, resource: Any) -> DescribedConfigs:
        """Return the settings of this node, its loggers, or those that are set for all nodes: none."""
        kind, name = resource.resource_type, resource.resource_name
        if kind == CLIENT_METRICS or (kind == BROKER and not name):
            return DescribedConfigs({})
        if kind not in {BROKER, BROKER_LOGGER}:
            return DescribedConfigs({}, INVALID_REQUEST, f"Unsupported resource type: {kind}.")
        if not self.is_this_node(resource):
            message = f"Unexpected broker id, expected {self._topics.node} or empty string, but received {name}"
            return DescribedConfigs({}, INVALID_REQUEST, message)
        if kind == BROKER_LOGGER:
            return DescribedConfigs({"root": logging.getLevelName(logging.getLogger().getEffectiveLevel())})
        return DescribedConfigs(dict(self.own_settings()))

    def _topic(self, name: str, context: RequestContext) -> DescribedConfigs:
        """Return the settings of a topic; of other topics than the log, none is known here."""
        topic = name.encode()
        if not context.client.may_read_topic(topic):
            return DescribedConfigs({}, TOPIC_AUTHORIZATION_FAILED)
        if not is_valid_name(topic):
            return DescribedConfigs({}, INVALID_TOPIC_EXCEPTION)
        if not self._topics.now().partitions(topic):
            return DescribedConfigs({}, UNKNOWN_TOPIC_OR_PARTITION)
        if topic != INTERNAL:
            return DescribedConfigs({})
        return DescribedConfigs({"max.message.bytes": MAX_COMMIT_BATCH_BYTES, "segment.bytes": SEGMENT_BYTES})

    def own_settings(self) -> Iterator[tuple[str, Setting]]:
        """Yield the settings of this process."""
        settings, protocol = self._settings, security_protocol(self._settings)
        host, port = self._address()
        folder = str(Path(settings.log).resolve())
        common: dict[str, Setting] = {
            "node.id": self._topics.node,
            "broker.id": self._topics.node,
            "listeners": f"{protocol}://{settings.host}:{settings.port or port}",
            "advertised.listeners": f"{protocol}://{host}:{port}",
            "log.dir": folder,
            "log.dirs": folder,
            "message.max.bytes": MAX_COMMIT_BATCH_BYTES,
            "max.connections": settings.max_connections,
            "max.connections.per.ip": settings.max_connections_per_address,
            "offset.metadata.max.bytes": MAX_METADATA_UNITS,
            "offsets.topic.num.partitions": settings.log_partitions,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.segment.bytes": SEGMENT_BYTES,
        }
        yield from common.items()
        if settings.credentials is not None:
            yield "sasl.enabled.mechanisms", self._security.mechanisms
        if settings.tls_certificate is not None:
            yield "ssl.client.auth", "none" if settings.tls_client_ca is None else "required"
        for field, name in BROKER_NAMES.items():
            if name.startswith("group."):
                yield name, getattr(settings.coordinator, field)
        yield "auto.create.topics.enable", False
        yield "transaction.max.timeout.ms", MAX_TIMEOUT_MS
        yield "transactional.id.expiration.ms", TRANSACTIONAL_ID_EXPIRATION_MS


def requested_resources(request: Any) -> Collection[Any]:
    """Return the resources that a request names, each once."""
    return {(each.resource_type, each.resource_name): each for each in request.resources}.values()


def _config(name: str, setting: Setting, *, with_synonyms: bool) -> Values:
    """Return a setting as DescribeConfigs describes it."""
    kind, value = _typed(setting)
    synonym = {"name": name, "value": value, "source": _STATIC_BROKER_CONFIG}
    synonyms: Collection[Values] = [synonym] if with_synonyms else []
    return {
        "name": name,
        "value": value,
        "read_only": True,
        "config_source": _STATIC_BROKER_CONFIG,
        "is_sensitive": False,
        "synonyms": synonyms,
        "config_type": kind,
        "documentation": None,
    }


def _typed(setting: Setting) -> tuple[int, str]:
    """Return the type and the text of a setting."""
    if isinstance(setting, bool):
        return _BOOLEAN, str(setting).lower()
    if isinstance(setting, int):
        return _INT, str(setting)
    return (_STRING, setting) if isinstance(setting, str) else (_LIST, ",".join(setting))
