"""The write of one record of a share partition."""

from collections.abc import Callable, Sequence

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches.writer import Batch
from offsetlake.log.positions import SHARE_STATE_TOPIC, LogPartition


class ShareStateWrite:
    """A record in a batch of its own, unless the write is `cancelled`, because an earlier one failed.

    `done` is called with None when the record is durable, otherwise with the error.
    """

    __slots__ = ("_batch", "_done", "cancelled", "partition")
    exclusive = False

    def __init__(self, number: int, batch: Batch, done: Callable[[LogUnavailable | None], None]) -> None:
        self.partition = LogPartition(SHARE_STATE_TOPIC, number)
        self._batch, self._done = batch, done
        self.cancelled = False

    def batches(self) -> Sequence[Batch]:
        """Return the batch; none if the write was cancelled."""
        return () if self.cancelled else (self._batch,)

    def written(self, _firsts: list[int]) -> None:
        """Report that the record is durable."""
        if not self.cancelled:
            self._done(None)

    def failed(self, error: LogUnavailable) -> None:
        """Report that the record was not written."""
        if not self.cancelled:
            self._done(error)
