"""What the serving process runs with."""

import json
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the serving process.

    | field          | is |
    |----------------|----|
    | lake, log      | folders; made where they are not there |
    | host, port     | where it listens for Kafka's protocol; port 0: any that is free |
    | topics         | by name their partitions; None: any topic may be committed to |
    | flush          | a `offsetlake.serve.writes.Flush` |
    | log_partitions | how many log partitions there are |
    | http           | host and port where it listens for HTTP, and counts what it does; None: neither |
    | log_format     | a `offsetlake.serve.logs.LogFormat` |
    """

    lake: str
    log: str
    host: str
    port: int
    topics: dict[str, int] | None = None
    flush: str = "always"
    log_partitions: int = 50
    http: tuple[str, int] | None = None
    log_format: str = "text"

    def to_json(self) -> str:
        """Write the settings; `from_json` reads them."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))
