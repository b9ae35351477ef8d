"""Loads Kafka's message schemas from `schemas/`: a JSON file for each message, in the format of Kafka's files.

A file states the topic and the record type of its message (`topic`, `recordType`), so a new file adds a record type.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from offsetlake.kafka.uuid import ZERO_UUID_TEXT

_FILES = files("offsetlake.kafka.records") / "schemas"
_ZERO_VALUES = {"string": "", "bytes": b"", "uuid": ZERO_UUID_TEXT}


class Versions(NamedTuple):
    """The versions from `first` to `last`, inclusive; none if `last` is less than `first`."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """Parse `0-4`, `2+`, `1` or `none`."""
        if text == "none":
            return cls(0, -1)
        first, dash, last = text.removesuffix("+").partition("-")
        if text.endswith("+"):
            return cls(int(first), 2**15 - 1)
        return cls(int(first), int(last) if dash else int(first))

    def has(self, version: int) -> bool:
        """Return whether a version is one of them."""
        return self.first <= version <= self.last

    def __str__(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"


@dataclass(frozen=True, eq=False, slots=True)
class Field:
    """A field of a message or of a struct.

    Attributes:
        name: The name of the field.
        type: `int8` to `int64`, `uint16`, `uuid`, `string`, `bytes` or the name of a struct; for an array, the type of
            its elements.
        is_array: Whether the field is an array.
        versions: The versions that have the field.
        nullable: The versions in which the field may be null.
        tagged: The versions in which the field is tagged.
        tag: The number of the tag; -1 if the field is never tagged.
        required: Whether the encoder needs a value: the field is not tagged and has no default in the schema.
        default: The value that an absent field has.
        fields: The fields of a struct or of an array of structs, else None.
    """

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    required: bool
    default: Any
    fields: "tuple[Field, ...] | None"


@dataclass(frozen=True, eq=False, slots=True)
class Schema:
    """A message in all its versions; `record_type` and `topic` are None if it is not a record.

    Schemas are compared by identity.
    """

    name: str
    record_type: int | None
    topic: str | None
    valid: Versions
    flexible: Versions
    fields: tuple[Field, ...]


@cache
def load_schema(name: str) -> Schema:
    """Return the schema of a message, such as `OffsetCommitValue`."""
    spec = json.loads(_FILES.joinpath(f"{name}.json").read_text(encoding="utf-8"))
    structs = {struct["name"]: struct["fields"] for struct in spec.get("commonStructs", ())}
    return Schema(
        name=spec["name"],
        record_type=spec.get("recordType"),
        topic=spec.get("topic"),
        valid=Versions.parse(spec["validVersions"]),
        flexible=Versions.parse(spec["flexibleVersions"]),
        fields=_fields(spec["fields"], structs),
    )


def load_schemas() -> Iterator[Schema]:
    """Return the schemas of all messages, ordered by name."""
    names = sorted(file.name for file in _FILES.iterdir())
    return (load_schema(name.removesuffix(".json")) for name in names if name.endswith(".json"))


def _fields(specs: list[dict[str, Any]], structs: Mapping[str, list[dict[str, Any]]]) -> tuple[Field, ...]:
    return tuple(_field(spec, structs) for spec in specs)


def _field(spec: dict[str, Any], structs: Mapping[str, list[dict[str, Any]]]) -> Field:
    element, is_array = spec["type"].removeprefix("[]"), spec["type"].startswith("[]")
    inner = spec.get("fields", structs.get(element))
    fields = None if inner is None else _fields(inner, structs)
    return Field(
        name=spec["name"],
        type=element,
        is_array=is_array,
        versions=Versions.parse(spec["versions"]),
        nullable=Versions.parse(spec.get("nullableVersions", "none")),
        tagged=Versions.parse(spec.get("taggedVersions", "none")),
        tag=spec.get("tag", -1),
        required="default" not in spec and "tag" not in spec,
        default=spec["default"] if "default" in spec else _zero(element, is_array, fields),
        fields=fields,
    )


def _zero(element: str, is_array: bool, fields: tuple[Field, ...] | None) -> Any:
    """Return the default of a field without one in the schema; a struct has the defaults of its fields."""
    if is_array:
        return []
    if fields is not None:
        return {field.name: field.default for field in fields}
    return _ZERO_VALUES.get(element, 0)
