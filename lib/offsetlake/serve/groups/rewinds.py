"""Offsets that are set while the members of their group run."""

import asyncio
from dataclasses import dataclass

from offsetlake.coordinator.rewind import NOT_WRITTEN, RewindReply
from offsetlake.coordinator.steps import Step, Token
from offsetlake.kafka.batches.writer import NO_HEADERS, Headers
from offsetlake.serve.storage.store import Store
from offsetlake.serve.writes.conditional import GroupBatch
from offsetlake.serve.writes.job_socket import RewindResult


@dataclass(slots=True)
class RequestedRewind:
    """Offsets to set, and the log offset of the first one, -1 if they are not durable."""

    batch: GroupBatch
    done: asyncio.Future[RewindResult]
    log_offset: int = -1

    def serve(self, store: Store, log_offset: int) -> None:
        """Serve the durable offsets."""
        self.log_offset = log_offset
        self.batch.serve(store, log_offset)

    def reply(self, answer: object | None, error: int) -> None:
        """Set the result."""
        refusal = answer.error if isinstance(answer, RewindReply) else f"{NOT_WRITTEN}: error code {error}"
        if not self.done.done():
            self.done.set_result(RewindResult(self.log_offset, refusal or ""))


def ended_by(step: Step, requested: dict[Token, RequestedRewind]) -> RequestedRewind | None:
    """Remove the rewinds that a step ends, and return the one whose offsets are the first records of the step."""
    completed = None
    for token, reply in step.replies:
        if isinstance(reply, RewindReply):
            ended = requested.pop(token)
            completed = completed if reply.error else ended
    return completed


def headers_of(offsets: RequestedRewind | None) -> Headers:
    """Return the audit headers of a step."""
    return NO_HEADERS if offsets is None else offsets.batch.headers


def size_of(offsets: RequestedRewind | None) -> int:
    """Return the size of the offsets of a step in bytes."""
    return 0 if offsets is None else len(offsets.batch.batch.data)
