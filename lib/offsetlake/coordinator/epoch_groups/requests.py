"""What the heartbeats of the types of groups with epochs have in common."""

from typing import NamedTuple

from offsetlake.coordinator.epoch_groups.assignment import Assignment
from offsetlake.kafka import error_codes

JOIN_EPOCH = 0
LEAVE_EPOCH = -1


class HeartbeatResponse(NamedTuple):
    """The response; `assignment` is None if the member keeps the assignment that it has."""

    error_code: int = error_codes.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


class RequestError(Exception):
    """A request that is answered with an error code."""

    def __init__(self, error_code: int, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


def require_text(value: str | None, name: str) -> None:
    """Raise RequestError if a text is present but blank."""
    if value is not None and not value.strip():
        raise RequestError(error_codes.INVALID_REQUEST, f"{name} can't be empty.")
