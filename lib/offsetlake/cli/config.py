"""The settings of commands: defaults, `--config FILE`, the environment, and options; each overrides the previous."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offsetlake.cli.spark_config import MASTER, REMOTE, spark_properties
from offsetlake.coordinator.settings import BROKER_NAMES
from offsetlake.errors import BadRequest
from offsetlake.lake.location.locate import locate
from offsetlake.lake.location.location import Location
from offsetlake.lake.upkeep import VacuumRetention
from offsetlake.log.address import LogAddress
from offsetlake.log.cluster.connection import SETTINGS, KafkaConnection
from offsetlake.pipeline.expire.policy_text import read_policy
from offsetlake.rules.policy import Keep, RetentionPolicy
from offsetlake.util.properties import check_known, read_properties, read_text
from offsetlake.util.resources import resource
from offsetlake.util.times import duration_ms, kept_ms

_LIMITS = ("history", "audit_events")  # tables with the setting `keep`
_TABLES = ("kafka", "retention", "maintain", "serve", "spark", "console", *_LIMITS)
KEYS = ("lake", "log", "bootstrap", "format", "kafka_config", *_TABLES)
SERVE = (
    "kafka", "http", "console", "share", "topics", "cluster", "node_id", "metadata_max_age", "flush", "log_partitions",
    "log_format", "commits_recorded", "advertised", "open_to_anyone", "tls_certificate", "tls_key", "tls_client_ca",
    "credentials", "acl", "max_connections", "max_connections_per_address", "commits_per_second",
    "store", "zookeeper.address", "zookeeper.groups", "zookeeper.config",
    *(f"groups.{name}" for name in BROKER_NAMES.values()),
)  # fmt: skip
_CONSOLE = ("grafana",)
_VACUUM_RETENTIONS = ("vacuum_retention", "state_vacuum_retention")
MAX_VACUUM_RETENTION = (
    "7d"  # the time for which Delta keeps the tombstones of data files (deletedFileRetentionDuration)
)
FORMATS = ("table", "json", "csv")
PREFIX = "OFFSETLAKE_"
FLEET, CLUSTER = "OFFSETLAKE_FLEET", "OFFSETLAKE_CLUSTER"
OTHER_VARIABLES = ("OFFSETLAKE_CONFIG", FLEET, CLUSTER)  # not settings: files of settings, and which lake of a fleet
_KAFKA = f"{PREFIX}KAFKA_"
_VARIABLES = {f"{PREFIX}{key.upper()}": key for key in KEYS if key not in _TABLES}
_KAFKA_VARIABLES = {f"{_KAFKA}{name.upper().replace('.', '_')}": name for name in SETTINGS}
_SPARK_VARIABLES = {f"{PREFIX}SPARK_{name.upper()}": name for name in ("master", "remote")}

_MERGED = ("kafka", "serve", "maintain", "spark", "console")  # tables whose keys come from all sources

Layer = dict[str, Any]
"""The settings of one source by KEYS.

`kafka` is a table of client properties by their Kafka names, `retention` a policy,
`maintain` a table of _VACUUM_RETENTIONS in ms, `history` and `audit_events` how long they are kept in ms, `serve` a
table of SERVE, each value as on the command line, `spark` a table of Spark properties by their full names, and
`console` a table of _CONSOLE.
"""


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a command; its `repr` contains no secrets.

    | Field               | Description |
    |---------------------|-------------|
    | lake                | The location of the lake. |
    | log                 | The folder of the log; set together with `bootstrap` only if one source sets both. |
    | bootstrap           | `HOST:PORT` of a live cluster. |
    | format              | The output format: table, json or csv. |
    | kafka               | Client properties by their Kafka names, without `bootstrap.servers`. |
    | retention           | The retention policy for committed offsets. |
    | vacuum_retention    | How long `maintain` keeps data files that are no longer referenced. |
    | keep                | How long `maintain` keeps history and audit events. |
    | serve               | The settings of `serve` by SERVE, as on its command line. |
    | spark               | Spark properties by their full names, among them `spark.master` or `spark.remote`. |
    | console             | `grafana`: the address of the dashboard to which the console links. |
    """

    lake: Location
    log: str | None
    bootstrap: str | None
    format: str
    kafka: Mapping[str, str] = field(repr=False)
    retention: RetentionPolicy
    vacuum_retention: VacuumRetention
    keep: Keep
    serve: Mapping[str, str]
    spark: Mapping[str, str] = field(repr=False)
    console: Mapping[str, str]

    def address(self) -> LogAddress:
        """Return the address of the log; raise BadRequest for no log, two logs, or invalid client properties."""
        connection = None
        if self.bootstrap is not None:
            connection = KafkaConnection.from_settings({**self.kafka, "bootstrap.servers": self.bootstrap})
        return LogAddress(folder=None if self.log is None else Path(self.log), connection=connection)


@dataclass(frozen=True, slots=True)
class Entry:
    """The settings of one lake in a file of lakes: the parsed table by KEYS, and its place for error messages."""

    table: Mapping[str, Any] = field(repr=False)
    place: str


def load(options: Mapping[str, str | None], environment: Mapping[str, str], entry: Entry | None = None) -> Config:
    """Merge all sources of settings.

    Args:
        options: Command-line options by KEYS and others, which are ignored; None if an option was omitted.
        environment: The environment variables.
        entry: The settings of the lake in a file of lakes. They override the environment.

    Raises:
        BadRequest: A key is unknown, a value has the wrong type, or a file cannot be read.

    """
    file = options.get("config") or environment.get("OFFSETLAKE_CONFIG")
    given = {key: value for key, value in options.items() if value is not None and key in KEYS}
    defaults = _from_toml(resource("conf", "offsetlake.toml").read_text(encoding="utf-8"), "conf/offsetlake.toml")
    named = _from_toml(read_text(file), file, defaults["retention"].default_ms) if file else {}
    default_ms = (defaults | named)["retention"].default_ms
    of_lake = _layer(entry.table, "", entry.place, default_ms) if entry else {}
    layers = [defaults, named, _from_environment(environment), of_lake, given]
    merged: Layer = {"log": None, "bootstrap": None, **{table: {} for table in _MERGED}, **dict.fromkeys(_LIMITS)}
    for layer in map(_with_kafka_file, layers):
        if layer.keys() & {"log", "bootstrap"}:  # mutually exclusive: the later source wins
            merged |= {"log": None, "bootstrap": None}
        if layer.get("spark", {}).keys() & {MASTER, REMOTE}:  # as above
            merged["spark"] = {name: merged["spark"][name] for name in merged["spark"].keys() - {MASTER, REMOTE}}
        merged |= {**layer, **{table: merged[table] | layer.get(table, {}) for table in _MERGED}}
    if merged["format"] not in FORMATS:
        raise BadRequest(f"Invalid format {merged['format']!r}: expected one of {', '.join(FORMATS)}.")
    vacuum_retention = VacuumRetention(*map(merged.pop("maintain").get, _VACUUM_RETENTIONS))
    keep = Keep(*(merged.pop(name) for name in _LIMITS))
    lake = locate(merged["lake"])
    return Config(**{**merged, "lake": lake, "vacuum_retention": vacuum_retention, "keep": keep})


def _from_toml(text: str, name: str, retention_ms: int | None = None) -> Layer:
    return _layer(parsed_toml(text, name), text, name, retention_ms)


def parsed_toml(text: str, name: str) -> dict[str, Any]:
    """Parse a TOML file; raise BadRequest, with the name of the file, if it is invalid."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadRequest(f"{name} is not valid TOML: {error}.") from error


def _layer(table: Mapping[str, Any], text: str, name: str, retention_ms: int | None) -> Layer:
    """Return the settings of a parsed table; `text` is that of the file, empty if the table is a part of it."""
    layer = {**table}
    check_known(layer, KEYS, name)
    for key, known in (("kafka", SETTINGS), ("serve", SERVE), ("console", _CONSOLE)):
        if key in layer:
            layer[key] = _texts(layer, key, known, name)
    if "spark" in layer:
        layer["spark"] = spark_properties(_texts(layer, "spark", None, name), f"{name}, table spark")
    if "retention" in layer:
        layer["retention"] = read_policy(layer["retention"], text, name, retention_ms)
    if "maintain" in layer:
        layer["maintain"] = _vacuum_retentions(layer["maintain"], f"{name}, table maintain")
    layer |= {key: _keep(layer[key], f"{name}, table {key}") for key in _LIMITS if key in layer}
    for key in layer.keys() - {*_TABLES}:
        if not isinstance(layer[key], str):
            raise BadRequest(f"{name}: {key} must be a string.")
    return layer


def _vacuum_retentions(table: object, where: str) -> dict[str, int]:
    if not isinstance(table, dict) or not all(isinstance(text, str) for text in table.values()):
        raise BadRequest(f'{where}: expected a table [maintain] with a key such as vacuum_retention = "7d".')
    check_known(table, _VACUUM_RETENTIONS, where)
    return {key: _vacuum_retention(text, f"{where}: {key}") for key, text in table.items()}


def _keep(table: object, where: str) -> int:
    """Return the only setting of a table, `keep`, in ms."""
    if not isinstance(table, dict) or not isinstance(table.get("keep"), str):
        raise BadRequest(f'{where}: expected a table with a key such as keep = "400d".')
    check_known(table, ("keep",), where)
    return _duration(table["keep"], f"{where}: keep")


def _duration(text: str, where: str) -> int:
    try:
        return kept_ms(text)
    except BadRequest as error:
        raise BadRequest(f"{where}: {error}") from error


def _vacuum_retention(text: str, where: str) -> int:
    retention_ms = _duration(text, where)
    if retention_ms > duration_ms(MAX_VACUUM_RETENTION):
        raise BadRequest(f"{where} must be at most {MAX_VACUUM_RETENTION}: Delta tracks removed files no longer.")
    return retention_ms


def _texts(layer: Layer, key: str, known: Iterable[str] | None, name: str) -> dict[str, str]:
    """Read a table of strings, numbers and booleans as strings; `known` are its keys, None for any."""
    if not isinstance(layer[key], dict):
        raise BadRequest(f"{name}: {key} must be a table.")
    flat = _flat(layer[key], name)
    if known is not None:
        check_known(flat, known, f"{name}, table {key}")
    return flat


def _flat(table: object, name: str, prefix: str = "") -> dict[str, str]:
    """Join nested keys: TOML parses `security.protocol = ...` as a table in a table."""
    if isinstance(table, dict):
        parts = [_flat(value, name, f"{prefix}.{key}" if prefix else key) for key, value in table.items()]
        return {key: value for part in parts for key, value in part.items()}
    if not isinstance(table, str | int | float):
        raise BadRequest(f"{name}: {prefix} must be a string, a number or a boolean.")
    return {prefix: str(table).lower() if isinstance(table, bool) else str(table)}


def _from_environment(environment: Mapping[str, str]) -> Layer:
    variables = {name: value for name, value in environment.items() if name.startswith(PREFIX)}
    check_known(variables, (*_VARIABLES, *_KAFKA_VARIABLES, *_SPARK_VARIABLES, *OTHER_VARIABLES), "The environment")
    layer: Layer = {_VARIABLES[name]: value for name, value in variables.items() if name in _VARIABLES and value}
    kafka = {_KAFKA_VARIABLES[name]: value for name, value in variables.items() if name in _KAFKA_VARIABLES}
    spark = {_SPARK_VARIABLES[name]: value for name, value in variables.items() if name in _SPARK_VARIABLES and value}
    return layer | {"kafka": kafka, "spark": spark_properties(spark, f"The environment, {', '.join(_SPARK_VARIABLES)}")}


def _with_kafka_file(layer: Layer) -> Layer:
    """Replace `kafka_config` by the client properties in that file, and move `bootstrap.servers` to `bootstrap`."""
    file = layer.get("kafka_config")
    kafka = {**(read_properties(file, SETTINGS) if file else {}), **layer.get("kafka", {})}
    servers = kafka.pop("bootstrap.servers", None)
    rest = {key: value for key, value in layer.items() if key not in ("kafka_config", "kafka")}
    if servers is not None and "log" not in rest:
        rest.setdefault("bootstrap", servers)
    return rest | {"kafka": kafka}
