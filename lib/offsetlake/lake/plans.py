"""Plans of running jobs: what an interrupted run needs to be completed, a JSON file of the lake each.

See `offsetlake.lake.runs` for when they are written and removed.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self, TypeVar


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is needed to repeat a run that was interrupted; `begin` sets its number and its start time (ms)."""

    run_id: int = 0
    started_at: int = 0
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return the plan that `to_json` wrote, also by another version of the program; ignores unknown fields."""
        known = {known_field.name for known_field in fields(cls)}
        return cls(**{name: _frozen(value) for name, value in stored.items() if name in known})

    def with_notes(self, *notes: str) -> Self:
        """Return the plan with further notes."""
        return replace(self, notes=(*self.notes, *notes))


@dataclass(frozen=True, kw_only=True)
class IngestPlan(Plan):
    """Which part of the log an ingest reads.

    | field        | description |
    |--------------|-------------|
    | log, log_identity | location of the log; its cluster id, if the log has one |
    | ranges, gaps | log offsets to read, and those deleted before they were read, as `ranges_to_json` writes them |
    | positions    | topic, partition and position from which the next ingest reads on; checksum and leader epoch |
    |              | of the last batch before, None if unknown |
    | log_partitions, grown | number of partitions of `__consumer_offsets`; whether partitions were added |
    | absent       | partitions that are not in the log |
    | missing      | topic, partition, start and end of log offsets that partitions of the log lack |
    | log_ends, log_ends_asked | log end offsets of partitions, and when (ms) a cluster returned them, if it did |
    """

    log: str
    log_identity: str | None
    ranges: str
    gaps: str
    positions: tuple[tuple[str, int, int, int | None, int | None], ...]
    log_ends: tuple[tuple[Any, ...], ...] = ()
    log_ends_asked: int | None = None
    log_partitions: int | None = None
    grown: bool | None = None
    absent: tuple[tuple[str, int], ...] = ()
    missing: tuple[tuple[str, int, int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class CompactPlan(Plan):
    """The ingest runs that a compaction takes in, none if `from_run` is greater, and the versions it starts from."""

    from_run: int
    through_run: int
    versions: dict[str, int]

    @property
    def has_history(self) -> bool:
        """Whether there are ingest runs to take in."""
        return self.from_run <= self.through_run


@dataclass(frozen=True, kw_only=True)
class RebuildPlan(Plan):
    """The tables to rebuild with their versions, and the log partition to rebuild; None means all."""

    tables: tuple[str, ...]
    log_partition: int | None
    versions: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class MaintainPlan(Plan):
    """What a maintain drops of history: through which ingest run, and the instant from which history is complete.

    The number of an ingest run is None if nothing is dropped; an instant is None if no dropped record has a timestamp.
    """

    history_through: int | None = None
    history_begins: int | None = None
    audit_events_through: int | None = None
    audit_events_begins: int | None = None


@dataclass(frozen=True, kw_only=True)
class ForgetPlan(Plan):
    """The principal whose name is replaced in the audit events, and the number of their rows that contain it."""

    principal: str
    rows: int


SomePlan = TypeVar("SomePlan", bound=Plan)


def _frozen(value: Any) -> Any:
    """Return a JSON value with tuples in place of lists."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
