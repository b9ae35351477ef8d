"""Encoded responses of OffsetFetch by request, each until an offset of its groups changes."""

from collections.abc import Sequence
from typing import NamedTuple

from offsetlake.serve.storage.group_details import CommitSender

MAX_REQUEST_BYTES = 4 << 10
MAX_BYTES = 32 << 20
_ENTRY_BYTES = 500  # approximate memory of the objects of a response, without its bytes

Request = tuple[int, int, bytes]
"""The version of a request, the revision of the topics that it names by id (0 without ids), and its body."""


class Prepared(NamedTuple):
    """A response without errors, and the groups that it is about, with the member that asked."""

    groups: Sequence[tuple[bytes, CommitSender]]
    response: bytes


class PreparedResponses:
    """The responses that were used last, in at most MAX_BYTES of memory."""

    def __init__(self) -> None:
        self._responses: dict[Request, Prepared] = {}  # those used last at the end
        self._by_group: dict[bytes, set[Request]] = {}
        self._bytes = 0

    def get(self, request: Request) -> Prepared | None:
        """Return the response to a request, None if it has to be encoded."""
        prepared = self._responses.pop(request, None)
        if prepared is not None:
            self._responses[request] = prepared
        return prepared

    def keep(self, request: Request, prepared: Prepared) -> None:
        """Keep a response, in place of those that were not used for longest."""
        if request in self._responses:
            self._drop(request)
        self._responses[request] = prepared
        for group, _ in prepared.groups:
            self._by_group.setdefault(group, set()).add(request)
        self._bytes += _size(request, prepared)
        while self._bytes > MAX_BYTES:
            self._drop(next(iter(self._responses)))

    def invalidate(self, group: bytes) -> None:
        """Drop the responses about a group, whose offsets change."""
        for request in [*self._by_group.get(group, ())]:
            self._drop(request)

    def clear(self) -> None:
        """Drop all responses."""
        self._responses.clear()
        self._by_group.clear()
        self._bytes = 0

    def _drop(self, request: Request) -> None:
        prepared = self._responses.pop(request)
        self._bytes -= _size(request, prepared)
        for group, _ in prepared.groups:
            requests = self._by_group[group]
            requests.discard(request)
            if not requests:
                del self._by_group[group]


def _size(request: Request, prepared: Prepared) -> int:
    return len(request[2]) + len(prepared.response) + _ENTRY_BYTES * len(prepared.groups)
