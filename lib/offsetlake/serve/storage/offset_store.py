"""Where committed offsets are stored, beside the log, in which all of them are."""

from collections.abc import Callable, Sequence
from typing import Protocol

from offsetlake.kafka.error_codes import NONE

Answer = Callable[[int], None]
"""Called with an error code, NONE if there is none."""


class OffsetStore(Protocol):
    """A store of offsets.

    `error` is the error code of all commits for now: while the store is loaded, or is not available.
    """

    error: int

    def put(self, group: bytes, answer: Answer) -> None:
        """Answer when the offsets of a group that are durable in the log by now are stored."""

    def get(self, groups: Sequence[bytes], answer: Answer) -> None:
        """Answer when the served offsets of groups are those that are stored."""

    def delete(self, group: bytes, answer: Answer) -> None:
        """Answer whether a group may be deleted; the store then follows the tombstones in the log."""


class _Log:
    error = NONE

    def put(self, _group: bytes, answer: Answer) -> None:
        answer(NONE)

    def get(self, _groups: Sequence[bytes], answer: Answer) -> None:
        answer(NONE)

    def delete(self, _group: bytes, answer: Answer) -> None:
        answer(NONE)


LOG_STORE: OffsetStore = _Log()
"""The log as the store: what is durable there is stored."""
