"""Dispatches the requests of one connection: OffsetCommit and OffsetFetch directly, others by `ApiDispatcher`."""

from offsetlake.serve.apis.api_dispatcher import ApiDispatcher
from offsetlake.serve.apis.offset_fetch import OffsetFetch
from offsetlake.serve.net.answering import Answer
from offsetlake.serve.net.client import Client
from offsetlake.serve.protocol import wire
from offsetlake.serve.protocol.api_keys import OFFSET_COMMIT, OFFSET_FETCH, VERSIONS
from offsetlake.serve.writes.commit_request import FIRST_FLEXIBLE_VERSION
from offsetlake.serve.writes.committed_groups import CommittedGroups
from offsetlake.serve.writes.offset_commit import OffsetCommit

_FETCH_FLEXIBLE = 6
_COMMIT_VERSIONS, _FETCH_VERSIONS = VERSIONS[OFFSET_COMMIT], VERSIONS[OFFSET_FETCH]


class Service:
    """Handles the requests of one connection."""

    def __init__(self, commits: OffsetCommit, fetches: OffsetFetch, admin: ApiDispatcher, client: Client) -> None:
        self._commits, self._fetches, self._admin, self._client = commits, fetches, admin, client
        self._groups = CommittedGroups()

    def may_follow(self, header: wire.RequestHeader) -> bool:
        """Check whether a request may start before earlier ones are answered; see `net.connection.Requests`."""
        return header.api == OFFSET_COMMIT and not self._groups.deferred

    def take(self, frame: bytes, header: wire.RequestHeader, answer: Answer) -> int:
        """Handle a request; see `offsetlake.serve.net.connection.Requests.take`."""
        api, version, position, client = header.api, header.version, header.body, self._client
        if api == OFFSET_FETCH and version in _FETCH_VERSIONS:
            position = wire.skip_header_tags(frame, position) if version >= _FETCH_FLEXIBLE else position
            self._fetches.take(frame, position, version, answer, client)
        elif api == OFFSET_COMMIT and version in _COMMIT_VERSIONS:
            if version >= FIRST_FLEXIBLE_VERSION:
                position, groups = wire.skip_header_tags(frame, position), self._groups
                return self._commits.take(frame, position, header, lambda body: answer(b"\0" + body), groups, client)
            return self._commits.take(frame, position, header, answer, self._groups, client)
        else:
            return self._admin.take(frame, header, answer, client)
        return 0
