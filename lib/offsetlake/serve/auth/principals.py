"""Who is at the other end of a connection."""

import logging
from typing import TYPE_CHECKING, NamedTuple

from offsetlake.kafka.audit.headers import audit_headers
from offsetlake.kafka.batches.writer import Headers
from offsetlake.log.positions import OFFSETS_TOPIC
from offsetlake.serve.auth.acl import EVERYTHING, NAMES, READ, Access
from offsetlake.serve.logs import ClientLog, quoted
from offsetlake.serve.steps import Share, Work, complete

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = ClientLog(logging.getLogger(__name__))
ANONYMOUS = "User:ANONYMOUS"


class Client:
    """Who asks.

    | field     | is |
    |-----------|----|
    | principal | as Kafka writes it, `User:NAME`; ANONYMOUS where nobody was asked who it is |
    | address   | host and port it speaks from |
    | access    | what it may do |
    | close_connection   | ends its connection, where it cannot be answered |
    | share     | its share of the rounds in which writes reach the log |
    | work      | does `Work` in the turns of its connection; before any later request is taken of it |
    """

    __slots__ = ("access", "address", "close_connection", "principal", "share", "work")

    def __init__(self) -> None:
        self.principal = ANONYMOUS
        self.address = ""
        self.access: Access = EVERYTHING
        self.close_connection = _stay
        self.share = Share()
        self.work: Callable[[Work], object] = complete

    def may(self, right: int, group: bytes) -> bool:
        """Tell whether it may do one of the things `right` stands for to a group; a refusal leaves a line."""
        if self.access.may(right, group):
            return True
        if self.access.is_first_refusal(right, group):
            what = " or ".join(name for name, bit in NAMES.items() if bit & right)
            name = quoted(group.decode(errors="replace"))
            LOG.warning("%s from %s may not %s group %s", self.principal, self.address, what, name)
        return False

    def may_read_log(self) -> bool:
        """Tell whether it may read the commit log itself; a refusal leaves a line."""
        if self.access.may_read_log():
            return True
        if self.access.is_first_refusal(READ, OFFSETS_TOPIC.encode()):
            LOG.warning("%s from %s may not read the log %s", self.principal, self.address, OFFSETS_TOPIC)
        return False

    def audit_headers(self, what: str, client_id: bytes | None) -> Headers:
        """Give the headers that tell in the log who did this."""
        return audit_headers(what, self.principal, client_id or b"", self.address)


def _stay() -> None:
    """Do nothing: there is no connection."""


class RequestContext(NamedTuple):
    """What a handler knows of a request beside its fields."""

    version: int
    client: Client
    client_id: bytes | None

    def audit_headers(self, what: str) -> Headers:
        """Give the headers that tell in the log who did this."""
        return self.client.audit_headers(what, self.client_id)

    def may(self, right: int, group: bytes) -> bool:
        """Tell whether who asks may do one of the things `right` stands for to a group."""
        return self.client.may(right, group)
