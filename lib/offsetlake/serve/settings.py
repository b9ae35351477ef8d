"""The settings of the serving process."""

import json
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Self

from offsetlake.coordinator.settings import CoordinatorSettings

CONSOLE_PATH = "/console"
"""The path of the console at the HTTP listener."""


class ConsoleAccess(StrEnum):
    """What visitors of the console at the HTTP listener can do."""

    OFF = "off"
    READ = "read"
    CHANGES = "changes"


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The settings of the console at the HTTP listener.

    | Field          | Description |
    |----------------|-------------|
    | allows_changes | Whether those with the permission `admin` can change offsets. |
    | options        | The shared options of the command line, with which the console loads its settings. |
    """

    allows_changes: bool = False
    options: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """The settings of the connection to ZooKeeper.

    | Field   | Description |
    |---------|-------------|
    | address | The URL of the servers, with the chroot. |
    | groups  | Shell patterns of the groups whose commits are also written to ZooKeeper, with commas between them. |
    | config  | The file with the credentials (`offsetlake.zookeeper.client.SETTINGS`); None: without. |
    """

    address: str
    groups: str = "*"
    config: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the serving process.

    | Field            | Description |
    |------------------|-------------|
    | lake, log        | Folders; they are created if they do not exist. |
    | host, port       | The listener for the Kafka protocol; port 0 selects a free port. |
    | topics           | The number of partitions by topic; None accepts commits to any topic. |
    | flush            | A value of `offsetlake.serve.writes.rounds.Flush`. |
    | http             | Host and port of the HTTP listener; None disables HTTP and the metrics. |
    | console          | The console at the HTTP listener; None disables it. |
    | log_format       | A value of `offsetlake.util.log_lines.LogFormat`. |
    | log_partitions   | The number of log partitions. |
    | coordinator      | The limits and intervals of group membership. |
    | commits_recorded | The share of commits, 0 to 1, for which an audit event is recorded. |
    | cluster          | Kafka client properties of the cluster; None: without a cluster. |
    | node_id          | The node id in that cluster; None: this process is no broker of it. |
    | returning        | Give `__consumer_offsets` back to the brokers, then end; groups are not available meanwhile. |
    | share            | Host and port of the listener for share consumers of the cluster; None disables it. |
    | zookeeper        | The ZooKeeper to which commits are also written; None: to none. |
    | store            | The store of offsets, which decides: log or zookeeper. |
    | metadata_max_age_ms | How old the metadata of the cluster may become before it is read again. |

    Authentication, authorization and limits (`offsetlake.serve.net.security`):

    | Field                       | Description |
    |-----------------------------|-------------|
    | advertised                  | Host and port that clients connect to; None: those of the listener. |
    | open_to_anyone              | Permits a non-loopback listener without authentication. |
    | tls_certificate, tls_key    | PEM files; None disables TLS. |
    | tls_client_ca               | PEM file; clients need a certificate that is signed by this CA. |
    | credentials                 | File of `offsetlake.auth.credentials`; None disables SASL authentication. |
    | acl                         | ACL file (`offsetlake.auth.acl`); None allows every client everything. |
    | max_connections             | The maximum number of connections. |
    | max_connections_per_address | The maximum number of connections from one address. |
    | commits_per_second          | The quota of one group; None disables quotas. |
    """

    lake: str
    log: str
    host: str
    port: int
    topics: dict[str, int] | None = None
    flush: str = "always"
    log_partitions: int = 50
    commits_recorded: float = 0
    advertised: tuple[str, int] | None = None
    open_to_anyone: bool = False
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    credentials: str | None = None
    acl: str | None = None
    max_connections: int = 10_000
    max_connections_per_address: int = 5_000
    commits_per_second: float | None = None
    coordinator: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    http: tuple[str, int] | None = None
    console: ConsoleSettings | None = None
    log_format: str = "text"
    cluster: dict[str, str] | None = None
    node_id: int | None = None
    returning: bool = False
    metadata_max_age_ms: int = 5_000
    share: tuple[str, int] | None = None
    zookeeper: ZooKeeperSettings | None = None
    store: str = "log"

    def to_json(self) -> str:
        """Return the settings as JSON, which `from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the settings that `to_json` wrote."""
        fields = json.loads(text)
        coordinator = CoordinatorSettings(**fields.get("coordinator", {}))
        assignors = tuple(coordinator.consumer_assignors)  # an array in JSON
        zookeeper = fields.get("zookeeper") and ZooKeeperSettings(**fields["zookeeper"])
        console = fields.get("console") and ConsoleSettings(**fields["console"])
        nested = {"coordinator": replace(coordinator, consumer_assignors=assignors)}
        return cls(**fields | nested | {"zookeeper": zookeeper, "console": console})


SECRETS = {
    "sasl.password": "OFFSETLAKE_KAFKA_SASL_PASSWORD",
    "ssl.key.password": "OFFSETLAKE_KAFKA_SSL_KEY_PASSWORD",
}
"""The environment variables of the client properties that are passwords: every user of a machine can see the arguments
of a process, but not its environment."""


def without_secrets(settings: Settings) -> tuple[Settings, dict[str, str]]:
    """Return the settings without passwords, and these as environment variables."""
    cluster = settings.cluster or {}
    public = {name: value for name, value in cluster.items() if name not in SECRETS}
    variables = {SECRETS[name]: value for name, value in cluster.items() if name in SECRETS}
    return (replace(settings, cluster=public) if variables else settings), variables


def with_secrets(settings: Settings, environment: MutableMapping[str, str]) -> Settings:
    """Return the settings with the passwords of the environment, and remove these from it."""
    secrets = {name: environment.pop(variable) for name, variable in SECRETS.items() if variable in environment}
    return settings if settings.cluster is None else replace(settings, cluster=settings.cluster | secrets)
