"""Who is at the other end of a connection."""

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
