"""Audit headers: who requested a change, written to the first record of its batch.

A request writes one batch with records of one group. Brokers ignore the headers, and so does everything but the audit.

| Header          | Description (UTF-8) |
|-----------------|---------------------|
| `act.what`      | The operation: commit, delete offsets or delete group; for a job its purpose, such as reset |
| `act.principal` | The principal: `User:NAME` for a client of Kafka's protocol, `os:NAME` for a user of the machine |
| `act.client`    | The client ID; for a job its command; absent if unknown |
| `act.address`   | Host and port of the client; for a job its host; absent if unknown |

The first two are required. Headers on other records of the batch are ignored. The names are part of the format of the
log and keep the prefix `act.`; the table that `ingest` writes the events to is `audit_events`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # processes that only read a log do not need aiokafka, which takes 0.1 s
    from offsetlake.kafka.batches.writer import Headers

WHAT, PRINCIPAL, CLIENT, ADDRESS = "act.what", "act.principal", "act.client", "act.address"
HEADERS = {WHAT, PRINCIPAL, CLIENT, ADDRESS}
COMMIT, DELETE_OFFSETS, DELETE_GROUP = "commit", "delete offsets", "delete group"
MAX_VALUE_BYTES = 1024  # clients choose their IDs, which may have 32767 bytes


def audit_headers(what: str, principal: str, client: bytes, address: str) -> "Headers":
    """Return the headers of an audit event; long values are truncated and empty ones omitted."""
    values = {WHAT: what.encode(), PRINCIPAL: principal.encode(), CLIENT: client, ADDRESS: address.encode()}
    return [(name, _truncated(value)) for name, value in values.items() if value]


def _truncated(value: bytes) -> bytes:
    """Return a value as valid UTF-8 of at most MAX_VALUE_BYTES."""
    if len(value) <= MAX_VALUE_BYTES and value.isascii():
        return value
    return value.decode(errors="replace").encode()[:MAX_VALUE_BYTES].decode(errors="ignore").encode()
