"""Who is at the other end of a connection."""

import logging

from offsetlake.serve.rights import EVERYTHING, NAMES, Access

LOG = logging.getLogger(__name__)
ANONYMOUS = "User:ANONYMOUS"


class Client:
    """Who asks.

    | field     | is |
    |-----------|----|
    | principal | as Kafka writes it, `User:NAME`; ANONYMOUS where nobody was asked who it is |
    | address   | host and port it speaks from |
    | access    | what it may do |
    """

    __slots__ = ("access", "address", "principal")

    def __init__(self) -> None:
        self.principal = ANONYMOUS
        self.address = ""
        self.access: Access = EVERYTHING

    def may(self, right: int, group: bytes) -> bool:
        """Tell whether it may do one of the things `right` stands for to a group; a refusal leaves a line."""
        if self.access.may(right, group):
            return True
        if self.access.is_first_refusal(right, group):
            what = " or ".join(name for name, bit in NAMES.items() if bit & right)
            name = group.decode(errors="replace")
            LOG.warning("%s from %s may not %s group %r", self.principal, self.address, what, name)
        return False
