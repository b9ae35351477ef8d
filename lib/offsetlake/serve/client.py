"""Who is at the other end of a connection."""

from typing import NamedTuple

from offsetlake.kafka.act_headers import Headers, act_headers

ANONYMOUS = "User:ANONYMOUS"


class Client:
    """Who asks.

    | field     | is |
    |-----------|----|
    | principal | as Kafka writes it, `User:NAME`; ANONYMOUS where nobody was asked who it is |
    | address   | host and port it speaks from |
    """

    __slots__ = ("address", "principal")

    def __init__(self) -> None:
        self.principal = ANONYMOUS
        self.address = ""

    def act(self, what: str, client_id: bytes | None) -> Headers:
        """Give the headers that tell in the log who did this."""
        return act_headers(what, self.principal, client_id or b"", self.address)


class Asked(NamedTuple):
    """What a handler knows of a request beside its fields."""

    version: int
    client: Client
    client_id: bytes | None

    def act(self, what: str) -> Headers:
        """Give the headers that tell in the log who did this."""
        return self.client.act(what, self.client_id)
