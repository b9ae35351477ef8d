"""What the steps of offsets are, by the rules of the view `changes`: commits, resets, rewinds, and so on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from offsetlake.lake.lake import Lake
from offsetlake.queries.exploring.keys import Key
from offsetlake.queries.exploring.steps import NONE, Flags, IntegerColumn, OffsetSteps
from offsetlake.queries.history.resets import REPAIR, are_resets, in_empty_periods
from offsetlake.util.row_codes import Ints

KINDS = ("commit", "skip ahead", "rewind", "reset", "undelete", "delete", "expiry")
"""The values of the column `change` of the view."""

_DECISIONS = """
  SELECT log_partition, log_offset, FALSE AS foreseen, run_id, strategy AS decision, evidence, FALSE AS is_retention
  FROM alterations WHERE {key} AND outcome = 'done'
  UNION ALL
  SELECT log_partition, CASE outcome WHEN 'gone' THEN judged_offset ELSE log_offset END AS log_offset,
    outcome = 'gone' AS foreseen, run_id, rule AS decision, CAST(NULL AS STRING) AS evidence,
    rule <> 'cleanup' AS is_retention
  FROM tombstones
  WHERE {key} AND topic IS NOT NULL AND (outcome = 'emitted' OR (outcome = 'gone' AND rule <> 'cleanup'))
  ORDER BY run_id"""

Row = Mapping[str, Any]
Place = tuple[int, int]
Kinds = npt.NDArray[np.int8]
Column_co = TypeVar("Column_co", bound=IntegerColumn, covariant=True)


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions of runs of offsetlake about some offsets.

    | Field    | Description |
    |----------|-------------|
    | made     | by log partition and log offset of the record that a run wrote: run_id, decision, evidence, is_retention |
    | foreseen | the same of tombstones that retention had planned, but another program wrote: by the place of the record that was judged |
    """  # noqa: E501 - a row of a table

    made: Mapping[Place, Row]
    foreseen: Mapping[Place, Row]

    @classmethod
    def read(cls, lake: Lake, key: Key) -> "Decisions":
        """Return the decisions about the offsets of a key."""
        made, foreseen = dict[Place, Row](), dict[Place, Row]()
        for row in lake.query(_DECISIONS.format(key=key.condition), "alterations", "tombstones").to_pylist():
            (foreseen if row["foreseen"] else made)[row["log_partition"], row["log_offset"]] = row
        return cls(made, foreseen)


@dataclass(frozen=True, slots=True)
class Changes(Generic[Column_co]):
    """Steps of offsets of a group, the number of the kind of each, in KINDS, and the decisions about the offsets."""

    steps: OffsetSteps[Column_co]
    kinds: Kinds
    decisions: Decisions

    def of(self, topic: str, partition: int) -> "Changes[IntegerColumn]":
        """Return the changes of one offset."""
        if [*self.steps.offsets] == [(topic, partition)]:
            return self
        return self.at(self.steps.of(topic, partition))

    def at(self, chosen: Ints) -> "Changes[Ints]":
        """Return some of the changes, by their indexes."""
        return Changes(self.steps.at(chosen), self.kinds[chosen], self.decisions)


def classified(lake: Lake, key: Key, steps: OffsetSteps[Ints]) -> Changes[Ints]:
    """Return steps of a key with their kinds."""
    decisions = Decisions.read(lake, key)
    return Changes(steps, _kinds(lake, key, steps, decisions), decisions)


def _kinds(lake: Lake, key: Key, steps: OffsetSteps[Ints], decisions: Decisions) -> Kinds:
    made = _places(steps.log_partition, steps.log_offset, decisions.made)
    decided = {index: decisions.made[place]["decision"] for index, place in made.items()}
    by_us = _flags(steps, [index for index, decision in decided.items() if decision not in (None, REPAIR)])
    by_nobody = ~_flags(steps, [index for index, decision in decided.items() if decision is not None])
    by_retention = _flags(steps, [index for index, place in made.items() if decisions.made[place]["is_retention"]])
    by_retention |= _flags(steps, [*_places(steps.log_partition, steps.old_log_offset, decisions.foreseen)])
    is_deleted, was_deleted = steps.new == NONE, (steps.old == NONE) & (steps.old_log_offset != NONE)
    group = Key(key.group_id)
    where = f"{group.placed(lake)} AND {group.condition}"
    is_empty = in_empty_periods(lake, where, steps.log_partition, steps.log_offset)
    is_lower = (steps.new < steps.old) & (steps.old != NONE)
    first_applies = {
        "expiry": is_deleted & by_retention,
        "delete": is_deleted,
        "undelete": by_us & was_deleted,
        "reset": are_resets(by_us, was_deleted, by_nobody, steps.is_transactional, is_empty),
        "rewind": is_lower,
        "skip ahead": steps.skips_ahead,
    }
    numbers = [KINDS.index(kind) for kind in first_applies]
    return np.select([*first_applies.values()], numbers, 0).astype(np.int8)


def rows_of(key: Key, changes: Changes[Ints]) -> list[Row]:
    """Return the rows of the view `changes` about some changes of a key, in their order, without producer_id."""
    decisions, steps = changes.decisions, changes.steps
    rows: list[Row] = []
    for index, row in enumerate(steps.rows().to_pylist()):
        old, new = row["old_offset"], row["new_offset"]
        topic, partition = steps.offsets[steps.number[index]]
        place = (row["log_partition"], row["log_offset"])
        made = decisions.made.get(place, {})
        foreseen = {} if new is not None else decisions.foreseen.get((place[0], int(steps.old_log_offset[index])), {})
        rows.append({
            "group_id": key.group_id, "topic": topic, "partition": partition, **row,
            "change": KINDS[changes.kinds[index]], "difference": None if None in (old, new) else new - old,
            "run_id": made.get("run_id", foreseen.get("run_id")),
            "decision": made.get("decision") or foreseen.get("decision"), "evidence": made.get("evidence"),
        })  # fmt: skip
    return rows


def _places(log_partition: Ints, log_offset: Ints, wanted: Mapping[Place, Row]) -> dict[int, Place]:
    """Return by index the places that are wanted."""
    if not wanted:
        return {}
    near = np.flatnonzero(np.isin(log_offset, [offset for _, offset in wanted])).tolist()
    places = ((index, (int(log_partition[index]), int(log_offset[index]))) for index in near)
    return {index: place for index, place in places if place in wanted}


def _flags(steps: OffsetSteps[Ints], indexes: list[int]) -> Flags:
    flags = np.zeros(len(steps.new), np.bool_)
    flags[indexes] = True
    return flags
