"""The query parameters and the request bodies of the HTTP API."""

from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from offsetlake.errors import BadRequest
from offsetlake.kafka.records.readers import MAX_STRING
from offsetlake.serve.writes.commit_rules import MAX_METADATA_UNITS
from offsetlake.util.times import to_ms

MAX_OFFSETS = 10_000
"""The offsets in one commit, which delays other requests while it is parsed and written."""

MAX_FIELDS = 20
"""The fields of one object in a body."""

MAX_PARTITION, MAX_EPOCH = 2**31 - 1, 2**31 - 1
MAX_OFFSET = 9_200_000_000_000_000_000
"""Below 2**63 - 1 and exactly representable as a double, as numbers in OpenAPI are."""


def _name(text: str) -> str:
    if len(text.encode()) > MAX_STRING:
        raise ValueError(f"expected at most {MAX_STRING} bytes of UTF-8")
    return text


def _metadata(text: str) -> str:
    if len(text.encode("utf-16-le")) > 2 * MAX_METADATA_UNITS:
        raise ValueError(f"expected at most {MAX_METADATA_UNITS} UTF-16 code units")
    return text


def _integer(number: object) -> object:
    """Accept 5.0 as 5: JSON does not distinguish them."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _timestamp(text: str) -> str:
    try:
        to_ms(text)
    except BadRequest as error:
        raise ValueError(str(error)) from error
    return text


OffsetRow = TypeVar("OffsetRow", bound="SetOffset")
Name = Annotated[str, AfterValidator(_name)]
Partition = Annotated[int, Field(ge=0, le=MAX_PARTITION), BeforeValidator(_integer)]
Offset = Annotated[int, Field(ge=0, le=MAX_OFFSET), BeforeValidator(_integer)]
AnyOffset = Annotated[int, BeforeValidator(_integer)]
Epoch = Annotated[int, Field(ge=0, le=MAX_EPOCH), BeforeValidator(_integer)]
Timestamp = Annotated[
    str,
    AfterValidator(_timestamp),
    Field(description="ms since the epoch, or ISO 8601 (in UTC if without a time zone)", examples=["2026-01-31T14:05"]),
]


class QueryParameters(BaseModel):
    """Query parameters; unknown parameters are refused."""

    model_config = ConfigDict(extra="forbid")


class GroupQuery(QueryParameters):
    """The name of a group, which may be any text, such as `a/b`, `..` or the empty one, unlike in a path."""

    group: Name


class OffsetsQuery(GroupQuery):
    """Offsets of a group, of one topic or of all, now or at a timestamp."""

    topic: Name | None = None
    as_of: Timestamp | None = None


class OffsetQuery(GroupQuery):
    """An offset of a group."""

    topic: Name
    partition: Partition


class GroupsQuery(QueryParameters):
    """A page of groups, optionally filtered by state and type."""

    after: Annotated[str | None, Field(description="`next` of the previous page", pattern="^[0-9a-f]{8}$")] = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    state: str | None = None
    type: str | None = None


class Body(BaseModel):
    """A part of a body; types are not converted, and unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _check_field_count(cls, value: object) -> object:
        """Refuse an object with many fields at once, as each unknown one would be an error of its own."""
        if isinstance(value, dict) and len(value) > MAX_FIELDS:
            raise ValueError(f"expected at most {len(cls.model_fields)} fields, not {len(value)}")
        return value


class SetOffset(Body):
    """An offset of a partition."""

    topic: Annotated[Name, Field(min_length=1)]
    partition: Partition
    offset: Offset
    leader_epoch: Epoch | None = None
    metadata: Annotated[str, AfterValidator(_metadata)] = ""


class NewOffset(SetOffset):
    """An offset to commit if the committed offset is `expected`, where null means that there is none."""

    expected: AnyOffset | None


def _unique(offsets: list[OffsetRow]) -> list[OffsetRow]:
    if len({(offset.topic, offset.partition) for offset in offsets}) < len(offsets):
        raise ValueError("expected each partition at most once")
    return offsets


class CommitBody(Body):
    """Offsets of one group; either all of them are committed or none is."""

    group: Name
    offsets: Annotated[
        list[NewOffset], Field(min_length=1, max_length=MAX_OFFSETS, fail_fast=True), AfterValidator(_unique)
    ]


class RewindBody(Body):
    """Offsets to set while the members of a group run; either all of them are set or none is."""

    group: Name
    offsets: Annotated[
        list[SetOffset], Field(min_length=1, max_length=MAX_OFFSETS, fail_fast=True), AfterValidator(_unique)
    ]
