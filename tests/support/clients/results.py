"""The plan of a run of real consumers, and what the run has shown."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from support.clients.evidence import MovedBack, Wait, missing, repeated, waits
from support.clients.fleet import KINDS
from support.clients.output import Batch


@dataclass(frozen=True)
class Plan:
    """What happens in a run: `kills` of the serving process, evenly in the time in which records are produced."""

    records: int
    seconds: float
    kills: int
    kinds: Sequence[str]
    """Names of KINDS; a name that occurs twice is two members."""
    member_events: int
    """How many times a member is killed, paused or added."""
    session_ms: int
    seed: int = 1


@dataclass
class Results:
    """What a run has shown."""

    plan: Plan
    ends: dict[int, int] = field(default_factory=dict)
    """The number of records by partition."""
    seconds: float = 0
    outages: list[tuple[int, int]] = field(default_factory=list)
    """The times in ms at which the process was killed, and at which it served again."""
    events: Counter[str] = field(default_factory=Counter)
    read: dict[str, list[Batch]] = field(default_factory=dict)
    """The batches by group."""
    commits: int = 0
    moved_back: list[MovedBack] = field(default_factory=list)
    committed: dict[str, dict[int, int]] = field(default_factory=dict)
    results: Counter[int] = field(default_factory=Counter)
    """How many times each result was produced."""
    tools: Counter[str] = field(default_factory=Counter)
    """Runs of the group tool by outcome."""
    failures: list[str] = field(default_factory=list)

    @property
    def groups(self) -> list[str]:
        """The groups that read."""
        return sorted({KINDS[name].group for name in self.plan.kinds})

    def missing(self, group: str) -> list[tuple[int, int, int]]:
        """Return the ranges that a group has not read."""
        return missing(self.read[group], self.ends)

    def repeated(self, group: str) -> int:
        """Return how many records a group has read again."""
        return repeated(self.read[group], self.ends)

    def waits(self, group: str) -> list[Wait]:
        """Return the waits of records, the longest first."""
        return sorted(waits(self.read[group]), reverse=True)

    def served_ms(self, wait: Wait) -> int:
        """Return for how long of a wait the process served."""
        start = wait.read_ms - wait.ms
        down = (min(end, wait.read_ms) - max(begin, start) for begin, end in self.outages)
        return wait.ms - sum(each for each in down if each > 0)

    def wrong(self) -> list[str]:
        """Return what must not have happened."""
        found = [f"{group} did not read {rows[:5]}" for group in self.groups if (rows := self.missing(group))]
        found += [f"{row} moved back" for row in self.moved_back if row.in_generation]
        found += [
            f"{group} has committed {self.committed.get(group)}, not {self.ends}"
            for group in self.groups
            if self.committed.get(group) != self.ends
        ]
        if "pipeline" in self.groups:
            produced = sum(self.ends.values())
            often = [number for number, count in self.results.items() if count > 1]
            lost = produced - len(self.results)
            if often or lost:
                found.append(f"{len(often)} results were produced more than once ({often[:5]}), {lost} not at all")
        return found + self.failures
