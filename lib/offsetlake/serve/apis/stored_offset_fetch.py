"""OffsetFetch from a store of offsets other than the log: the served offsets are brought up to date first."""

from offsetlake.auth.acl import READ
from offsetlake.serve.apis.offset_fetch import OffsetFetch
from offsetlake.serve.net.answering import Answer
from offsetlake.serve.net.client import Client
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.steps import Work
from offsetlake.serve.storage.offset_store import OffsetStore
from offsetlake.serve.storage.store import Store


class StoredOffsetFetch(OffsetFetch):
    """Answers OffsetFetch when the served offsets are those of a store of offsets."""

    def __init__(self, store: Store, topics: Topics, offsets: OffsetStore) -> None:
        super().__init__(store, topics)
        self._offsets = offsets

    def take(self, frame: bytes, position: int, version: int, answer: Answer, client: Client) -> None:
        """Answer the request whose body begins at `position`."""
        client.work(self._get(frame[position:], version, answer, client))

    def _get(self, body: bytes, version: int, answer: Answer, client: Client) -> Work:
        request = yield from self._read(body, version)

        def respond(error: int) -> None:
            client.work(self._respond(request, b"", version, answer, client, error))

        groups = [each.group for each in request.groups if client.may(READ, each.group)]
        if groups and not self._store.loading:
            self._offsets.get(groups, respond)
        else:
            yield from self._respond(request, b"", version, answer, client)
        return 0
