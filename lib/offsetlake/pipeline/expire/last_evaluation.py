"""What the last evaluation depended on, in a file of the lake: if that is the same, another one decides the same.

An evaluation depends on the state tables, on the tombstones planned before, on the policy, the topics that were
deleted, the rules of the program, and the time. Time changes nothing before the first instant at which the retention
time of another offset is over.
"""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from offsetlake.errors import LakeUnusable
from offsetlake.lake.lake import Lake
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.util.program import program_version

_FILE = "evaluated.json"


@dataclass(frozen=True, kw_only=True)
class LastEvaluation:
    """An evaluation with its result.

    | Field            | Description |
    |------------------|-------------|
    | now, next_change | The time in ms since the epoch, and the first instant at which another one decides otherwise. |
    | versions         | The versions of the tables that another one reads: `tombstones` as this one left it. |
    | policy, deleted_topics, program | The policy, the deleted topics, the version of the program. |
    | counts           | The number of offsets by rule. |
    | oldest_planned   | The oldest run with a tombstone that is still planned. |
    """

    now: int
    next_change: int
    versions: dict[str, int]
    policy: RetentionPolicy
    deleted_topics: tuple[str, ...]
    counts: dict[str, int]
    oldest_planned: int
    program: str = program_version()

    def record(self, lake: Lake) -> None:
        """Write the evaluation to its file."""
        with lake.location.errors():
            lake.files.write(_FILE, asdict(self))


def same_evaluation(
    lake: Lake, now: int, versions: dict[str, int], policy: RetentionPolicy, deleted_topics: tuple[str, ...]
) -> LastEvaluation | None:
    """Return the last evaluation if another one at the time `now` decides the same; None if it may not."""
    try:
        stored = lake.files.read(_FILE)
    except LakeUnusable:  # it only saves work, and the next evaluation writes it again
        return None
    if stored is None or not {field.name for field in fields(LastEvaluation)} <= stored.keys():
        return None
    inputs: dict[str, Any] = {
        "versions": versions,
        "policy": asdict(policy),
        "deleted_topics": deleted_topics,
        "program": program_version(),
    }
    same = all(stored.get(name) == value for name, value in json.loads(json.dumps(inputs)).items())
    if not same or not stored["now"] <= now < stored["next_change"]:
        return None
    return LastEvaluation(**{**stored, "policy": policy, "deleted_topics": deleted_topics})
