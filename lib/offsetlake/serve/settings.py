"""What the serving process runs with."""

import json
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the serving process.

    | field            | is |
    |------------------|----|
    | lake, log        | folders; made where they are not there |
    | host, port       | where it listens for Kafka's protocol; port 0: any that is free |
    | topics           | by name their partitions; None: any topic may be committed to |
    | flush            | a `offsetlake.serve.writes.rounds.Flush` |
    | http             | host and port where it listens for HTTP, and counts what it does; None: neither |
    | log_format       | a `offsetlake.serve.logs.LogFormat` |
    | log_partitions   | how many log partitions there are |
    | commits_recorded | share of commits, 0 to 1, of which is recorded who sent them |

    Who is let in, and what they may do (`offsetlake.serve.net.security`):

    | field                       | is |
    |-----------------------------|----|
    | advertised                  | host and port clients are told to connect to; None: where it listens |
    | open_to_anyone              | listens beyond this machine although nobody is asked who they are |
    | tls_certificate, tls_key    | files in PEM; None: without TLS |
    | tls_client_ca               | file in PEM: only clients with a certificate of it are let in |
    | credentials                 | file of `offsetlake.serve.auth.credentials`; None: nobody has to log in |
    | rights                      | file of `offsetlake.serve.auth.acl`; None: who is let in may do everything |
    | max_connections             | in all |
    | max_connections_per_address | of one address |
    | commits_per_second          | of one group; None: as many as come |
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
    rights: str | None = None
    max_connections: int = 10_000
    max_connections_per_address: int = 5_000
    commits_per_second: float | None = None
    http: tuple[str, int] | None = None
    log_format: str = "text"

    def to_json(self) -> str:
        """Write the settings; `from_json` reads them."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))
