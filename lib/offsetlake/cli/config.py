"""What the commands run with: defaults, `--config FILE`, the environment, options; each wins over the one before."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offsetlake.cli.retention_config import read_policy
from offsetlake.errors import BadRequest
from offsetlake.log.address import LogAddress
from offsetlake.log.cluster.connection import SETTINGS, KafkaConnection
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.util.resources import resource
from offsetlake.util.times import duration_ms

KEYS = ("lake", "log", "bootstrap", "format", "kafka_config", "kafka", "retention", "maintain", "serve")
_TABLES = ("kafka", "retention", "maintain", "serve")
SERVE = (
    "kafka", "http", "topics", "flush", "log_partitions", "log_format", "commits_recorded", "advertised",
    "open_to_anyone", "tls_certificate", "tls_key", "tls_client_ca", "credentials", "rights", "max_connections",
    "max_connections_per_address", "commits_per_second",
)  # fmt: skip
LONGEST_VACUUM_RETENTION = "7d"  # Delta forgets after that when it was that a file went out of its table
FORMATS = ("table", "json", "csv")
PREFIX = "OFFSETLAKE_"
OTHER_VARIABLES = ("OFFSETLAKE_CONFIG", "OFFSETLAKE_JARS")  # read elsewhere: the file to read here, Spark's jars
_KAFKA = f"{PREFIX}KAFKA_"
_VARIABLES = {f"{PREFIX}{key.upper()}": key for key in KEYS if key not in _TABLES}
_KAFKA_VARIABLES = {f"{_KAFKA}{name.upper().replace('.', '_')}": name for name in SETTINGS}

Layer = dict[str, Any]
"""One source of settings: some of KEYS; `kafka` holds Kafka's settings by Kafka's names, `retention` a policy.

`maintain` is ms: how long its vacuum keeps files; `serve` has some of SERVE, as the options of that command.
"""


@dataclass(frozen=True, slots=True)
class Config:
    """What a command runs with; secrets are no part of its `repr`.

    | field               | is |
    |---------------------|----|
    | lake                | folder of the lake |
    | log                 | folder of the log; at most one of this and bootstrap, unless one source named both |
    | bootstrap           | `HOST:PORT` of a live cluster |
    | format              | table, json or csv |
    | kafka               | settings of the connection by Kafka's names, without `bootstrap.servers` |
    | retention           | how long offsets are kept |
    | vacuum_retention_ms | how long `maintain` keeps files that no table names any more |
    | serve               | of SERVE what is set: as the options of `serve` |
    """

    lake: Path
    log: str | None
    bootstrap: str | None
    format: str
    kafka: Mapping[str, str] = field(repr=False)
    retention: RetentionPolicy
    vacuum_retention_ms: int
    serve: Mapping[str, str]

    def address(self) -> LogAddress:
        """Name the log to read; BadRequest where none or two are named, or Kafka's settings make no sense."""
        connection = None
        if self.bootstrap is not None:
            connection = KafkaConnection.from_settings({**self.kafka, "bootstrap.servers": self.bootstrap})
        return LogAddress(folder=None if self.log is None else Path(self.log), connection=connection)


def load(options: Mapping[str, str | None], environment: Mapping[str, str]) -> Config:
    """Put the sources together; `options` are KEYS and `config`, None where not given.

    Raises BadRequest for a key that is not known, a value of the wrong kind, or a file that cannot be read.
    """
    file = options.get("config") or environment.get("OFFSETLAKE_CONFIG")
    given = {key: value for key, value in options.items() if value is not None and key != "config"}
    defaults = _from_toml(resource("conf", "offsetlake.toml").read_text(encoding="utf-8"), "conf/offsetlake.toml")
    layers = [
        defaults,
        _from_toml(_read(file), file, defaults["retention"].default_ms) if file else {},
        _from_environment(environment),
        given,
    ]
    merged: Layer = {"log": None, "bootstrap": None, "kafka": {}, "serve": {}}
    for layer in map(_with_kafka_file, layers):
        if layer.keys() & {"log", "bootstrap"}:  # the two exclude each other: the later source's choice stands
            merged |= {"log": None, "bootstrap": None}
        merged |= {**layer, **{table: merged[table] | layer.get(table, {}) for table in ("kafka", "serve")}}
    if merged["format"] not in FORMATS:
        raise BadRequest(f"format is {merged['format']!r}: it is one of {', '.join(FORMATS)}")
    vacuum_retention_ms = merged.pop("maintain")
    return Config(**{**merged, "lake": Path(merged["lake"]), "vacuum_retention_ms": vacuum_retention_ms})


def _from_toml(text: str, name: str, retention_ms: int | None = None) -> Layer:
    try:
        layer = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadRequest(f"{name} is no TOML: {error}") from error
    _check_known(layer, KEYS, name)
    for key, known in (("kafka", SETTINGS), ("serve", SERVE)):
        if key in layer:
            layer[key] = _texts(layer, key, known, name)
    if "retention" in layer:
        layer["retention"] = read_policy(layer["retention"], text, name, retention_ms)
    if "maintain" in layer:
        layer["maintain"] = _vacuum_retention(layer["maintain"], f"{name}, table maintain")
    for key in layer.keys() - {*_TABLES}:
        if not isinstance(layer[key], str):
            raise BadRequest(f"{name}: {key} must be a text in quotes")
    return layer


def _vacuum_retention(table: object, where: str) -> int:
    if not isinstance(table, dict) or not isinstance(table.get("vacuum_retention"), str):
        raise BadRequest(f'{where}: write a table [maintain] with vacuum_retention = "7d" or shorter')
    _check_known(table, ("vacuum_retention",), where)
    try:
        retention_ms = duration_ms(table["vacuum_retention"])
    except BadRequest as error:
        raise BadRequest(f"{where}: vacuum_retention: {error}") from error
    if retention_ms > duration_ms(LONGEST_VACUUM_RETENTION):
        raise BadRequest(f"{where}: vacuum_retention is at most {LONGEST_VACUUM_RETENTION}: Delta knows no longer")
    return retention_ms


def _texts(layer: Layer, key: str, known: Iterable[str], name: str) -> dict[str, str]:
    """Read a table of texts and numbers."""
    if not isinstance(layer[key], dict):
        raise BadRequest(f"{name}: {key} must be a table")
    flat = _flat(layer[key], name)
    _check_known(flat, tuple(known), f"{name}, table {key}")
    return flat


def _flat(table: object, name: str, prefix: str = "") -> dict[str, str]:
    """Join nested keys: TOML reads `security.protocol = ...` as a table in a table."""
    if isinstance(table, dict):
        parts = [_flat(value, name, f"{prefix}.{key}" if prefix else key) for key, value in table.items()]
        return {key: value for part in parts for key, value in part.items()}
    if not isinstance(table, str | int | float):
        raise BadRequest(f"{name}: {prefix} must be a text, a number, true or false")
    return {prefix: str(table).lower() if isinstance(table, bool) else str(table)}


def _from_environment(environment: Mapping[str, str]) -> Layer:
    ours = {name: value for name, value in environment.items() if name.startswith(PREFIX)}
    known = {**_VARIABLES, **_KAFKA_VARIABLES}
    _check_known(ours, (*known, *OTHER_VARIABLES), "the environment")
    layer: Layer = {_VARIABLES[name]: value for name, value in ours.items() if name in _VARIABLES and value}
    return layer | {"kafka": {_KAFKA_VARIABLES[n]: value for n, value in ours.items() if n in _KAFKA_VARIABLES}}


def _with_kafka_file(layer: Layer) -> Layer:
    """Read the properties file a source names into its Kafka settings, and take their bootstrap servers out."""
    file = layer.get("kafka_config")
    kafka = {**(_from_properties(file) if file else {}), **layer.get("kafka", {})}
    servers = kafka.pop("bootstrap.servers", None)
    rest = {key: value for key, value in layer.items() if key not in ("kafka_config", "kafka")}
    if servers is not None and "log" not in rest:
        rest.setdefault("bootstrap", servers)
    return rest | {"kafka": kafka}


def _from_properties(file: str) -> dict[str, str]:
    """Read a Kafka client properties file: `name=value` a line, `#` or `!` begins a comment."""
    settings = {}
    for number, line in enumerate(_read(file).splitlines(), start=1):
        if not line.strip() or line.lstrip()[0] in "#!":
            continue
        name, equals, value = line.partition("=")
        if not equals:  # the line itself may hold a secret: only its number is told
            raise BadRequest(f"{file}, line {number} is no `name=value`")
        settings[name.strip()] = value.strip()
    _check_known(settings, SETTINGS, file)
    return settings


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{file} cannot be read: {error}") from error


def _check_known(given: Mapping[str, object], known: Mapping[str, object] | tuple[str, ...], where: str) -> None:
    if unknown := sorted(set(given) - set(known)):
        raise BadRequest(f"{where}: unknown {', '.join(unknown)}; known are {', '.join(known)}")
