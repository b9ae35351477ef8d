"""The write of an OffsetCommit: a record batch that is built before its round, and served after it."""

import struct
from collections import Counter
from collections.abc import Callable, Sequence

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches.writer import Batch
from offsetlake.kafka.error_codes import NONE, NOT_COORDINATOR
from offsetlake.serve.storage.offset_store import OffsetStore
from offsetlake.serve.storage.store import Store
from offsetlake.serve.writes.commit_request import CommitRequest

Answer = Callable[[bytes], None]
_INT32 = struct.Struct(">i")


class PendingCommit:
    """The write of a request: its record batch is built, its log offset is not known yet."""

    __slots__ = (
        "_answer", "_batch", "_error", "_errors", "_offset_store", "_offsets", "_request", "_store", "exclusive",
        "partition",
    )  # fmt: skip

    def __init__(
        self,
        partition: int,
        batch: Batch,
        store: Store,
        request: CommitRequest,
        offsets: bytes,
        answer: Answer,
        errors: Counter[int],
        offset_store: OffsetStore,
    ) -> None:
        self._offset_store = offset_store
        self.partition, self.exclusive, self._batch, self._errors = partition, False, batch, errors
        self._error = NONE
        self._store, self._request, self._offsets, self._answer = store, request, offsets, answer

    def batches(self) -> Sequence[Batch]:
        """Return the one batch, none if the members of the group have changed so that it is refused by now."""
        request = self._request
        live = self._store.live.get(request.group)
        if live is not None:
            self._error = live.commit_error(request.committer, request.version, transactional=False)
        return () if self._error else (self._batch,)

    def written(self, firsts: list[int]) -> None:
        """Serve the offsets, and answer when they are stored."""
        if not firsts:
            self._refuse(self._error)
            return
        request, last = self._request, firsts[0] + self._batch.records - 1
        self._store.commit_offsets(
            request.group, request.stored, self._offsets, last, without_member=request.without_member
        )
        self._end()
        self._offset_store.put(request.group, self._stored)

    def _stored(self, error: int) -> None:
        if error:
            self._errors[error] += self._batch.records
        self._answer(self._request.body(error) if error else self._request.success_body())

    def failed(self, _error: LogUnavailable) -> None:
        """Answer NOT_COORDINATOR (16), as a broker does that cannot write to its log."""
        self._refuse(NOT_COORDINATOR)

    def _refuse(self, error: int) -> None:
        self._errors[error] += self._batch.records
        self._end()
        self._answer(self._request.body(error))

    def _end(self) -> None:
        if self._request.queued_offsets is self._offsets:
            self._request.queued_offsets = b""


def throttled(answer: Answer, throttle_ms: int) -> Answer:
    """Set the throttle time of an answer, which is its first field."""
    return lambda body: answer(_INT32.pack(throttle_ms) + body[_INT32.size :])
