"""Clients and the context of their requests: principal, address, permissions."""

import logging
from typing import TYPE_CHECKING, NamedTuple

from offsetlake.auth.acl import ALL_PERMISSIONS, ANONYMOUS, PERMISSIONS, READ, READ_TOPIC, Access
from offsetlake.kafka.audit.headers import audit_headers
from offsetlake.kafka.batches.writer import Headers
from offsetlake.log.positions import OFFSETS_TOPIC
from offsetlake.serve.steps import Share, Work, complete
from offsetlake.util.log_lines import ClientLog, quoted

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = ClientLog(logging.getLogger(__name__))


class Client:
    """The client of one connection.

    | Field            | Description |
    |------------------|-------------|
    | principal        | As in Kafka, `User:NAME`; ANONYMOUS without authentication. |
    | address          | Host and port of the client. |
    | access           | Its permissions. |
    | close_connection | Closes the connection, if a request cannot be answered. |
    | share            | Its share of the write queue. |
    | work             | Runs `Work` in the turns of the connection, before any later request of it. |
    | checks_topics    | Whether topics have permissions: only at the listener for share consumers.  |
    | started_range    | The hash of the partitions whose unknown log start the last ListOffsets requested. |
    """

    __slots__ = (
        "access",
        "address",
        "checks_topics",
        "close_connection",
        "principal",
        "share",
        "started_range",
        "work",
    )

    def __init__(self) -> None:
        self.principal = ANONYMOUS
        self.address = ""
        self.access: Access = ALL_PERMISSIONS
        self.close_connection = _no_connection
        self.share = Share()
        self.work: Callable[[Work], object] = complete
        self.checks_topics = False
        self.started_range: int | None = None

    @property
    def host(self) -> str:
        """The address without its port, as a broker stores it with members: `/192.0.2.1`."""
        return f"/{self.address.rpartition(':')[0]}"

    def may(self, permission: int, group: bytes) -> bool:
        """Check whether the client has one of the permissions, given as bits, on a group; log the first refusal."""
        if self.access.may(permission, group):
            return True
        if self.access.is_first_refusal(permission, group):
            names = " or ".join(name for name, bit in PERMISSIONS.items() if bit & permission)
            group_id = quoted(group.decode(errors="replace"))
            LOG.warning(
                "%s from %s was denied access to group %s: it needs permission %s",
                self.principal,
                self.address,
                group_id,
                names,
            )
        return False

    def may_read_topic(self, topic: bytes) -> bool:
        """Check whether the client may read and describe a topic that a request names; log the first refusal."""
        if not self.checks_topics or self.access.may_read_topic(topic):
            return True
        if self.access.is_first_refusal(READ_TOPIC, topic):
            name = quoted(topic.decode(errors="replace"))
            LOG.warning(
                "%s from %s was denied access to topic %s: it needs permission read", self.principal, self.address, name
            )
        return False

    def may_read_log(self) -> bool:
        """Check whether the client may read the commit log itself; log the first refusal."""
        if self.access.may_read_log():
            return True
        if self.access.is_first_refusal(READ, OFFSETS_TOPIC.encode()):
            LOG.warning(
                "%s from %s was denied access to the log %s: it needs permission read or admin on group *",
                self.principal,
                self.address,
                OFFSETS_TOPIC,
            )
        return False

    def audit_headers(self, operation: str, client_id: bytes | None) -> Headers:
        """Return the record headers with an audit event: the operation and the client."""
        return audit_headers(operation, self.principal, client_id or b"", self.address)


def _no_connection() -> None:
    """Do nothing: the client has no connection."""


class RequestContext(NamedTuple):
    """The context of a request: its version, its client and the client id from its header."""

    version: int
    client: Client
    client_id: bytes | None

    def audit_headers(self, operation: str) -> Headers:
        """Return the record headers with an audit event, as `Client.audit_headers`."""
        return self.client.audit_headers(operation, self.client_id)

    def may(self, permission: int, group: bytes) -> bool:
        """Check whether the client has one of the permissions on a group, as `Client.may`."""
        return self.client.may(permission, group)
