"""Reads the settings of the serving process from the texts of a settings file and of options."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from offsetlake.cli.config import Config
from offsetlake.coordinator.settings import (
    BROKER_NAMES,
    BY_DURATION,
    MAX_INT,
    CoordinatorSettings,
    ShareIsolation,
    ShareOffsetReset,
)
from offsetlake.errors import BadRequest
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.serve.net.security import is_loopback, problems
from offsetlake.serve.settings import ConsoleAccess, ConsoleSettings, Settings, ZooKeeperSettings
from offsetlake.serve.writes.rounds import Flush
from offsetlake.util.extras import require
from offsetlake.util.log_lines import LogFormat
from offsetlake.util.patterns import pattern_problem
from offsetlake.util.properties import read_properties
from offsetlake.util.times import duration_ms
from offsetlake.zookeeper.address import SETTINGS, ZooKeeperAddress

_ZOOKEEPER = ("zookeeper.address", "zookeeper.groups", "zookeeper.config")
_STORES = ("log", "zookeeper")
_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:]+)\]|(?P<host>[^:]+)):(?P<port>[0-9]{1,5})")
_GROUPS = {f"groups.{name}": field for field, name in BROKER_NAMES.items()}
_ASSIGNORS = CoordinatorSettings().consumer_assignors
MIN_MAX_AGE_MS, MAX_MAX_AGE_MS = 1_000, 3_600_000
MAX_NODE_ID = 2**31 - 1
MAX_SHARE_GROUP_SIZE = 1_000  # as in a broker
_TOPIC = re.compile(r"(?P<name>[a-zA-Z0-9._-]{1,249}):(?P<partitions>[0-9]{1,9})")


def with_options(configured: Config, log: str, options: Mapping[str, object]) -> Settings:
    """Return the settings from the loaded ones and the options of a command, None if omitted; the options win.

    `log` describes the log folder for the error if none is configured. Raises BadRequest with all errors at once.
    """
    if configured.log is None:
        raise BadRequest(f"Specify the folder of {log}: --log DIR.")
    texts = {**configured.serve, **{name: str(value) for name, value in options.items() if value is not None}}
    return read_settings(str(configured.lake), configured.log, texts, configured.kafka)


def read_settings(
    lake: str, log: str, texts: Mapping[str, str], client_properties: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings from texts by the names of `config.SERVE`; raise BadRequest with all errors at once.

    `client_properties` are those of the cluster, if `texts` names one.
    """
    values: dict[str, Any] = {}
    errors = []
    for name, text in texts.items():
        try:
            values[name] = _READERS.get(name, _text)(name, text)
        except BadRequest as error:
            errors.append(str(error))
    errors += _cluster_errors(texts)
    if not errors and "cluster" in values:
        values["cluster"] = {**(client_properties or {}), "bootstrap.servers": values["cluster"]}
        errors = _connection_errors(values["cluster"])
    if not errors:
        if "metadata_max_age" in values:
            values["metadata_max_age_ms"] = values.pop("metadata_max_age")
        host, port = values.pop("kafka")
        coordinator = CoordinatorSettings(
            **{_GROUPS[name]: values.pop(name) for name in _GROUPS.keys() & values.keys()}
        )
        errors = _group_errors(coordinator)
    if not errors:
        errors = _store_errors(texts)
    if not errors:
        values["console"] = _console(values)
        values["zookeeper"] = _zookeeper({name: values.pop(name, None) for name in _ZOOKEEPER})
        settings = Settings(lake, log, host, port, coordinator=coordinator, **values)
        errors = problems(settings)
        if not errors:
            return settings
    raise BadRequest("; ".join(error.removesuffix(".") for error in errors) + ".")


def _cluster_errors(texts: Mapping[str, str]) -> list[str]:
    """Return the contradictions of the settings of a cluster."""
    errors = []
    if "cluster" in texts and "topics" in texts:
        errors.append("Specify either topics, or a cluster, which has its own topics.")
    if "cluster" not in texts and ("node_id" in texts or "share" in texts):
        errors.append("Specify the cluster of the node id, or of the listener for share consumers.")
    if "cluster" in texts and not ("node_id" in texts or "share" in texts):
        errors.append(
            "Specify the node id of this process in the cluster, or a listener for share consumers of the cluster."
        )
    return errors


def _connection_errors(properties: Mapping[str, str]) -> list[str]:
    """Return the error of client properties and the files that they name."""
    try:
        KafkaConnection.from_settings(properties).ssl_context()
    except BadRequest as error:
        return [str(error)]
    return []


def _store_errors(texts: Mapping[str, str]) -> list[str]:
    """Return the contradictions of the settings of the store of offsets."""
    if texts.get("store") != "zookeeper":
        return []
    errors = []
    if "zookeeper.address" not in texts:
        errors.append('Specify the address of ZooKeeper, zookeeper.address, or store = "log"')
    if "zookeeper.groups" in texts:
        errors.append('zookeeper.groups selects groups only with store = "log", otherwise ZooKeeper stores all groups')
    if "cluster" in texts:
        errors.append('With a cluster, the store of offsets is the log: specify store = "log"')
    return errors


def _console(values: Mapping[str, Any]) -> ConsoleSettings | None:
    """Return the settings of the console; None if it is off, or nothing is configured and it cannot be reached."""
    access = values.get("console")
    if access != ConsoleAccess.OFF and "http" in values and ("credentials" in values or is_loopback(values["http"][0])):
        return ConsoleSettings(allows_changes=access == ConsoleAccess.CHANGES)
    if access in {None, ConsoleAccess.OFF}:
        return None
    raise BadRequest(
        'The console is at the HTTP listener: set http, to a loopback address or with credentials, or console = "off".'
    )


def _zookeeper(values: Mapping[str, str | None]) -> ZooKeeperSettings | None:
    """Return the settings of ZooKeeper from the texts in the order of _ZOOKEEPER."""
    address, groups, config = values.values()
    if address is None:
        if groups or config:
            raise BadRequest("Specify the address of ZooKeeper: zookeeper.address.")
        return None
    require("zookeeper")
    ZooKeeperAddress.parse(address, {} if config is None else read_properties(config, SETTINGS))
    return ZooKeeperSettings(address, groups or "*", config)


def _patterns(name: str, text: str) -> str:
    for pattern in text.split(","):
        if problem := pattern_problem(pattern.strip()):
            raise BadRequest(f"Invalid {name}: {problem}.")
    return text


def _group_errors(settings: CoordinatorSettings) -> list[str]:
    """Return the contradictions of group settings, as far as a broker refuses them too."""
    errors = []
    if settings.min_session_timeout_ms > settings.max_session_timeout_ms:
        errors.append("groups.group.min.session.timeout.ms is greater than groups.group.max.session.timeout.ms")
    kinds = {
        "consumer": (settings.consumer_heartbeat_interval_ms, settings.consumer_session_timeout_ms),
        "share": (settings.share_heartbeat_interval_ms, settings.share_session_timeout_ms),
    }
    for kind, (interval_ms, timeout_ms) in kinds.items():
        if interval_ms >= timeout_ms:
            interval, timeout = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
            errors.append(f"groups.{interval} is not less than groups.{timeout}: all sessions would expire")
    return errors


def _text(_name: str, text: str) -> str:
    return text


def _address(name: str, text: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 2**16 - 1:
        raise BadRequest(f"Invalid {name} {text!r}: expected HOST:PORT, such as 127.0.0.1:9092.")
    return match["v6"] or match["host"], int(match["port"])


def _one_of(known: Iterable[str]) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text not in [*known]:
            raise BadRequest(f"Invalid {name} {text!r}: expected one of {', '.join(known)}.")
        return text

    return read


def _number_to(maximum: int, minimum: int = 1) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        if not text.isdecimal() or not minimum <= int(text) <= maximum:
            raise BadRequest(f"Invalid {name} {text!r}: expected a number from {minimum} to {maximum}.")
        return int(text)

    return read


def _share(name: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise BadRequest(f"Invalid {name} {text!r}: expected a share of all commits from 0 (none) to 1 (all).")
    return share


def _max_age(name: str, text: str) -> int:
    try:
        max_age_ms = duration_ms(text)
    except BadRequest as error:
        raise BadRequest(f"{name}: {error}") from error
    if not MIN_MAX_AGE_MS <= max_age_ms <= MAX_MAX_AGE_MS:
        raise BadRequest(f"Invalid {name} {text!r}: expected 1s to 1h.")
    return max_age_ms


def _offset_reset(name: str, text: str) -> str:
    duration = text.removeprefix(BY_DURATION)
    if text in [*ShareOffsetReset] or (text != duration and _is_iso_duration(duration)):
        return text
    values = ", ".join(ShareOffsetReset)
    raise BadRequest(f"Invalid {name} {text!r}: expected {values} or a duration of ISO 8601: {BY_DURATION}PT36H.")


def _is_iso_duration(text: str) -> bool:
    try:
        duration_ms(text)
    except BadRequest:
        return False
    return text.startswith("P")


def _flag(name: str, text: str) -> bool:
    if text not in {"true", "false"}:
        raise BadRequest(f"Invalid {name} {text!r}: expected true or false.")
    return text == "true"


def _assignors(name: str, text: str) -> tuple[str, ...]:
    """Return the assignors of NAME,..., the default one first."""
    assignors = tuple(part.strip() for part in text.split(","))
    if not {*assignors} <= {*_ASSIGNORS} or len({*assignors}) < len(assignors):
        raise BadRequest(f"Invalid {name} {text!r}: expected one or more of {', '.join(_ASSIGNORS)}, each once.")
    return assignors


def _topics(name: str, text: str) -> dict[str, int]:
    """Return the partition count by topic of NAME:PARTITIONS,..."""
    partitions: dict[str, int] = {}
    for part in text.split(","):
        match = _TOPIC.fullmatch(part.strip())
        if match is None or int(match["partitions"]) < 1:
            raise BadRequest(
                f"Invalid {name} {part.strip()!r}: expected NAME:PARTITIONS,... such as orders:12,payments:6."
            )
        if match["name"] in partitions:
            raise BadRequest(f"Invalid {name}: the topic {match['name']} is named twice.")
        partitions[match["name"]] = int(match["partitions"])
    return partitions


_READERS: Mapping[str, Callable[[str, str], Any]] = {
    "kafka": _address,
    "http": _address,
    "console": _one_of(ConsoleAccess),
    "advertised": _address,
    "share": _address,
    "topics": _topics,
    "metadata_max_age": _max_age,
    "node_id": _number_to(MAX_NODE_ID, minimum=0),
    "flush": _one_of(Flush),
    "log_format": _one_of(LogFormat),
    "log_partitions": _number_to(10_000),
    "max_connections": _number_to(1_000_000),
    "max_connections_per_address": _number_to(1_000_000),
    "commits_per_second": _number_to(1_000_000),
    "commits_recorded": _share,
    "zookeeper.groups": _patterns,
    "store": _one_of(_STORES),
    "open_to_anyone": _flag,
    **dict.fromkeys(_GROUPS, _number_to(MAX_INT)),
    "groups.group.initial.rebalance.delay.ms": _number_to(MAX_INT, minimum=0),
    "groups.group.consumer.regex.refresh.interval.ms": _number_to(MAX_INT, minimum=10_000),
    "groups.group.consumer.assignors": _assignors,
    "groups.group.share.delivery.count.limit": _number_to(10, minimum=2),
    "groups.group.share.partition.max.record.locks": _number_to(10_000, minimum=100),
    "groups.group.share.record.lock.duration.ms": _number_to(60_000, minimum=1_000),
    "groups.share.auto.offset.reset": _offset_reset,
    "groups.share.isolation.level": _one_of(ShareIsolation),
    "groups.group.share.max.size": _number_to(MAX_SHARE_GROUP_SIZE),
}
