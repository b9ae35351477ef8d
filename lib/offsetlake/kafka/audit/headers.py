"""Who did it, beside what was done: headers on the first record of a batch. One request is one batch, of one group.

| header          | is, in UTF-8 |
|-----------------|--------------|
| `act.what`      | what was asked for: commit, delete offsets, delete group; of a job what it was for, such as reset |
| `act.principal` | who asked: `User:NAME` of Kafka's protocol, `os:NAME` a user of the machine |
| `act.client`    | the client id; of a job its command; absent where nobody says |
| `act.address`   | host and port it came from; of a job the host; absent where nobody knows |

An audit event has at least the first two headers. On any other record of a batch they are ignored, and so do brokers
ignore them everywhere. The names of the headers are part of the format of the log and keep the prefix `act.`; the table
that `ingest` writes them to is `audit_events`.
"""

from offsetlake.kafka.batches.writer import Headers

WHAT, PRINCIPAL, CLIENT, ADDRESS = "act.what", "act.principal", "act.client", "act.address"
HEADERS = {WHAT, PRINCIPAL, CLIENT, ADDRESS}
COMMIT, DELETE_OFFSETS, DELETE_GROUP = "commit", "delete offsets", "delete group"
LONGEST = 1024  # bytes of a value: client ids have up to 32767, and anybody sends them


def audit_headers(what: str, principal: str, client: bytes, address: str) -> Headers:
    """Return the headers of an audit event; long values are truncated, empty ones are omitted."""
    values = {WHAT: what.encode(), PRINCIPAL: principal.encode(), CLIENT: client, ADDRESS: address.encode()}
    return [(name, _cut(value)) for name, value in values.items() if value]


def _cut(value: bytes) -> bytes:
    """Make UTF-8 of bytes that anybody sent, no longer than LONGEST."""
    if len(value) <= LONGEST and value.isascii():
        return value
    return value.decode(errors="replace").encode()[:LONGEST].decode(errors="ignore").encode()
