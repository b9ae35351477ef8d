"""The problems of the HTTP API: error responses according to RFC 9457, and their description in OpenAPI."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from offsetlake.kafka import error_codes
from offsetlake.web.http.json_response import VisibleJSONResponse

MEDIA_TYPE = "application/problem+json"

PROBLEMS: dict[str, tuple[int, str]] = {
    "invalid-json": (400, "Invalid JSON"),
    "authentication-required": (401, "Authentication required"),
    "permission-denied": (403, "Permission denied"),
    "not-found": (404, "Path not found"),
    "group-not-found": (404, "Group not found"),
    "partition-not-found": (404, "Partition not found"),
    "before-history": (404, "Timestamp before the history"),
    "method-not-allowed": (405, "Method not allowed"),
    "offsets-changed": (409, "Committed offsets differ from the expected ones"),
    "group-in-use": (409, "Group in use"),
    "rewind-refused": (409, "Rewind refused"),
    "transaction-open": (409, "Open transaction"),
    "too-large": (413, "Request body too large"),
    "misdirected": (421, "Misdirected request"),
    "invalid-request": (422, "Invalid request"),
    "too-many-commits": (429, "Commit quota exceeded"),
    "internal": (500, "Internal server error"),
    "loading": (503, "Log is loading"),
    "log-partition-not-read": (503, "Log partition of the group not read"),
    "log-not-writable": (503, "Log not writable"),
    "offsets-unknown": (503, "Committed offsets unknown"),
    "history-unavailable": (503, "History unavailable"),
}
"""The status and the title of each problem, by the last part of its type."""

_HAS_MEMBERS = ("group-in-use", "Group {group!r} has members. Stop its consumers, then try again.")

_PROBLEMS_BY_ERROR_CODE = {
    error_codes.UNKNOWN_MEMBER_ID: _HAS_MEMBERS,
    error_codes.NON_EMPTY_GROUP: _HAS_MEMBERS,
    error_codes.GROUP_SUBSCRIBED_TO_TOPIC: (
        "group-in-use",
        "Group {group!r} has members that are subscribed to the topic. Stop its consumers, then try again.",
    ),
    error_codes.UNSTABLE_OFFSET_COMMIT: (
        "transaction-open",
        "An open transaction has an offset of group {group!r}. Nothing was written; try again when it has ended.",
    ),
    error_codes.KAFKA_STORAGE_ERROR: (
        "offsets-unknown",
        "A record that cannot be decoded leaves an offset of group {group!r} unknown. Nothing was written.",
    ),
    error_codes.GROUP_ID_NOT_FOUND: ("group-not-found", "Group {group!r} does not exist or is a share group."),
    error_codes.UNKNOWN_TOPIC_OR_PARTITION: (
        "partition-not-found",
        "A partition is not among the server's --topics, or its number is too large. Nothing was written.",
    ),
    error_codes.NOT_COORDINATOR: (
        "log-not-writable",
        "The log cannot be written. Nothing was written; the server's log contains the reason.",
    ),
}


class Problem(HTTPException):
    """An error response; `fields` are additional members of the problem."""

    def __init__(self, name: str, detail: str, headers: dict[str, str] | None = None, **fields: Any) -> None:
        self.name, self.fields = name, fields
        super().__init__(PROBLEMS[name][0], detail, headers)

    def response(self) -> JSONResponse:
        """Return the response."""
        status, title = PROBLEMS[self.name]
        problem = {"type": f"urn:offsetlake:{self.name}", "title": title, "status": status, "detail": self.detail}
        return VisibleJSONResponse(problem | self.fields, status, self.headers, MEDIA_TYPE)


def problem_of_error_code(error: int, group: str) -> Problem:
    """Return the problem for an error code with which a write to a group was refused."""
    name, detail = _PROBLEMS_BY_ERROR_CODE[error]
    return Problem(name, detail.format(group=group))


def documented(*names: str) -> dict[int | str, dict[str, Any]]:
    """Return the description of problems in OpenAPI, by status."""
    responses: dict[int | str, dict[str, Any]] = {}
    for name in names:
        status, title = PROBLEMS[name]
        if status in responses:
            responses[status]["description"] += f". {title}"
        else:
            schema = {"$ref": "#/components/schemas/Problem"}
            responses[status] = {"description": title, "content": {MEDIA_TYPE: {"schema": schema}}}
    return responses


PROBLEM_SCHEMA = {
    "title": "Problem",
    "description": "An error response according to RFC 9457",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "enum": [f"urn:offsetlake:{name}" for name in PROBLEMS]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {"type": "object"},
            "description": "The invalid fields and the reasons (invalid-request)",
        },
        "current_offsets": {
            "type": "array",
            "items": {"$ref": "#/components/schemas/PartitionOffset"},
            "description": "The committed offsets that differ from the expected ones (offsets-changed)",
        },
    },
}
