"""The settings of the serving process."""

import json
from dataclasses import asdict, dataclass
from typing import Self


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
    | log_format       | A value of `offsetlake.serve.logs.LogFormat`. |
    | log_partitions   | The number of log partitions. |
    | commits_recorded | The share of commits, 0 to 1, for which an audit event is recorded. |

    Authentication, authorization and limits (`offsetlake.serve.net.security`):

    | Field                       | Description |
    |-----------------------------|-------------|
    | advertised                  | Host and port that clients connect to; None: those of the listener. |
    | open_to_anyone              | Permits a non-loopback listener without authentication. |
    | tls_certificate, tls_key    | PEM files; None disables TLS. |
    | tls_client_ca               | PEM file; clients need a certificate that is signed by this CA. |
    | credentials                 | File of `offsetlake.serve.auth.credentials`; None disables SASL authentication. |
    | acl                         | ACL file (`offsetlake.serve.auth.acl`); None allows every client everything. |
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
    http: tuple[str, int] | None = None
    log_format: str = "text"

    def to_json(self) -> str:
        """Return the settings as JSON, which `from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the settings that `to_json` wrote."""
        return cls(**json.loads(text))
