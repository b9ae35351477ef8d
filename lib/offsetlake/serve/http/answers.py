"""What HTTP answers look like: problems by RFC 9457, and the bodies of questions, commits and answers."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from offsetlake.errors import BadRequest
from offsetlake.kafka.records.readers import MAX_STRING
from offsetlake.serve.writes.offset_commit import METADATA_LIMIT
from offsetlake.util.escaping import visible_json
from offsetlake.util.times import to_ms

MEDIA_TYPE = "application/problem+json"
MAX_OFFSETS = 10_000
"""Of one commit. Others wait while it is read and written."""

MAX_FIELDS = 20
"""Of one object in a body."""

LARGEST_PARTITION, LARGEST_EPOCH = 2**31 - 1, 2**31 - 1
LARGEST_OFFSET = 9_200_000_000_000_000_000  # no log gets there; OpenAPI's limits are doubles, and this is one

PROBLEMS: dict[str, tuple[int, str]] = {
    "no-json": (400, "The body is no JSON"),
    "not-logged-in": (401, "Nobody knows who asks"),
    "not-allowed": (403, "Who asks may not do that"),
    "not-found": (404, "There is nothing at this path"),
    "group-not-found": (404, "There is no such group"),
    "partition-not-found": (404, "There is no such partition"),
    "before-history": (404, "Nothing is known of that time"),
    "method-not-allowed": (405, "The path does not take this method"),
    "changed-since": (409, "Something else stands than was expected"),
    "group-in-use": (409, "The group is in use"),
    "share-group": (409, "A share group has no offsets here"),
    "transaction-open": (409, "A transaction that is open holds an offset"),
    "too-large": (413, "The body is too large"),
    "misdirected": (421, "The request is for another host"),
    "makes-no-sense": (422, "The request makes no sense"),
    "too-many-commits": (429, "The group commits too often"),
    "internal": (500, "The server has a fault"),
    "loading": (503, "The log is still being loaded"),
    "log-broken": (503, "The log takes no more"),
    "history-unavailable": (503, "The lake does not answer"),
}
"""By name of a problem its status and title."""


class VisibleJSONResponse(JSONResponse):
    """JSON without characters from clients that control the terminal of somebody who calls curl."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return visible_json(json.dumps(content, ensure_ascii=False, separators=(",", ":"))).encode()


class Problem(HTTPException):
    """An answer that says why there is no other; `more` are fields of its own."""

    def __init__(self, name: str, detail: str, headers: dict[str, str] | None = None, **more: Any) -> None:
        self.name, self.more = name, more
        super().__init__(PROBLEMS[name][0], detail, headers)

    def response(self) -> JSONResponse:
        """Write it."""
        status, title = PROBLEMS[self.name]
        said = {"type": f"urn:offsetlake:{self.name}", "title": title, "status": status, "detail": self.detail}
        return VisibleJSONResponse(said | self.more, status, self.headers, MEDIA_TYPE)


def documented(*names: str) -> dict[int | str, dict[str, Any]]:
    """Describe problems as OpenAPI has it, by status."""
    found: dict[int | str, dict[str, Any]] = {}
    for name in names:
        status, title = PROBLEMS[name]
        if status in found:
            found[status]["description"] += f". {title}"
        else:
            schema = {"$ref": "#/components/schemas/Problem"}
            found[status] = {"description": title, "content": {MEDIA_TYPE: {"schema": schema}}}
    return found


PROBLEM_SCHEMA = {
    "title": "Problem",
    "description": "RFC 9457: what is wrong, where, why, and what to do",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "enum": [f"urn:offsetlake:{name}" for name in PROBLEMS]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {"type": "array", "items": {"type": "object"}, "description": "of makes-no-sense: where and what"},
        "standing": {
            "type": "array",
            "items": {"$ref": "#/components/schemas/PartitionOffset"},
            "description": "of changed-since: what stands now where it is not what was expected",
        },
    },
}


def _name(text: str) -> str:
    if len(text.encode()) > MAX_STRING:
        raise ValueError(f"it takes more than {MAX_STRING} bytes of UTF-8")
    return text


def _metadata(text: str) -> str:
    if len(text.encode("utf-16-le")) > 2 * METADATA_LIMIT:
        raise ValueError(f"it takes more than {METADATA_LIMIT} UTF-16 units")
    return text


def _whole(number: object) -> object:
    """Take 5.0 for 5: to JSON they are one number."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _instant(text: str) -> str:
    try:
        to_ms(text)
    except BadRequest as error:
        raise ValueError(str(error)) from error
    return text


Name = Annotated[str, AfterValidator(_name)]
Partition = Annotated[int, Field(ge=0, le=LARGEST_PARTITION), BeforeValidator(_whole)]
Offset = Annotated[int, Field(ge=0, le=LARGEST_OFFSET), BeforeValidator(_whole)]
AnyOffset = Annotated[int, BeforeValidator(_whole)]
Epoch = Annotated[int, Field(ge=0, le=LARGEST_EPOCH), BeforeValidator(_whole)]
Instant = Annotated[
    str,
    AfterValidator(_instant),
    Field(description="ms since the epoch or ISO 8601, UTC if it has no zone", examples=["2026-01-31T14:05"]),
]


class Question(BaseModel):
    """What a query string says: a parameter that is not known is refused, not passed over."""

    model_config = ConfigDict(extra="forbid")


class OfGroup(Question):
    """A group by its name, whatever that is: `a/b`, `..` or nothing at all, which no path would survive."""

    group: Name


class OfOffsets(OfGroup):
    """Offsets of a group: of a topic or all; now, or at an instant."""

    topic: Name | None = None
    as_of: Instant | None = None


class OfOffset(OfGroup):
    """An offset of a group."""

    topic: Name
    partition: Partition


class OfGroups(Question):
    """Groups: a page of them, of a state or type where named."""

    after: Annotated[str | None, Field(description="`next` of the page before", pattern="^[0-9a-f]{8}$")] = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    state: str | None = None
    type: str | None = None


class Strict(BaseModel):
    """A body: no type stands for another, and a field that is not known is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: object) -> object:
        """Refuse an object of many fields at once: each unknown one would be an error of its own."""
        if isinstance(value, dict) and len(value) > MAX_FIELDS:
            raise ValueError(f"it has {len(value)} fields; {len(cls.model_fields)} are known")
        return value


class WantedOffset(Strict):
    """An offset to store; only if `expected` stands until then, or nothing where that is null."""

    topic: Annotated[Name, Field(min_length=1)]
    partition: Partition
    expected: AnyOffset | None
    offset: Offset
    leader_epoch: Epoch | None = None
    metadata: Annotated[str, AfterValidator(_metadata)] = ""


class WantedCommit(Strict):
    """Offsets of one group; all of them are stored, or none."""

    group: Name
    offsets: Annotated[list[WantedOffset], Field(min_length=1, max_length=MAX_OFFSETS, fail_fast=True)]

    @model_validator(mode="after")
    def _once_each(self) -> "WantedCommit":
        if len({(of.topic, of.partition) for of in self.offsets}) < len(self.offsets):
            raise ValueError("a partition is named twice")
        return self


class Health(BaseModel):
    """That the process is well."""

    status: str


class CommitResult(BaseModel):
    """What was written: the log offset of its first record, and the log partition."""

    log_partition: int
    log_offset: int


class StoredOffset(BaseModel):
    """A committed offset; an epoch or id that the commit did not give is null."""

    topic: str
    partition: int
    committed_offset: int
    leader_epoch: int | None
    metadata: str
    topic_id: str | None


class Offsets(BaseModel):
    """Offsets of a group by topic and partition.

    `as_of` and `history_ends` are null for now: at an instant the lake is asked, which knows of nothing
    that was written behind `history_ends`.
    """

    group: str
    as_of: str | None = None
    history_ends: str | None = None
    offsets: Sequence[StoredOffset]


class PartitionOffset(BaseModel):
    """The committed offset of a partition; null where there is none."""

    topic: str
    partition: int
    committed_offset: int | None


class Group(BaseModel):
    """A group."""

    group: str
    type: str
    state: str
    protocol_type: str | None


class GroupsPage(BaseModel):
    """A page of groups; it may have fewer than were asked for, or none, and rarely some more.

    The next is `after` what is in `next`, which names no group.
    """

    groups: Sequence[Group]
    next: str | None


class LogPosition(BaseModel):
    """Up to where in a log partition the snapshot reaches, and the log does."""

    log_partition: int
    snapshot_end: int
    log_end: int


class SnapshotAnswer(BaseModel):
    """The snapshot that is served, below what was written since."""

    version: Annotated[int, Field(description="Delta version of the table `offsets`")]
    made_at: str
    offsets: int
    groups: int
    position: Sequence[LogPosition]
