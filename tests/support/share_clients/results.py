"""The plan of a run of real share consumers, and what the run has shown."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from support.broker.kafka_tools import OLDER
from support.share_clients.evidence import MAX_DELIVERIES, Consumed
from support.share_clients.fleet import KINDS
from support.share_clients.state_log import ACKNOWLEDGED, ARCHIVED, StateLog


@dataclass(frozen=True)
class SharePlan:
    """What happens in a run: `kills` of the serving process, evenly in the time in which records are produced."""

    records: int
    seconds: float
    kills: int
    kinds: Sequence[str]
    """Names of KINDS; a name that occurs twice is two members."""
    member_events: int
    """How many times a member is killed or paused."""
    lock_ms: int = 6_000
    seed: int = 1
    cluster_version: str = OLDER

    @property
    def groups(self) -> list[str]:
        """The groups that read."""
        return sorted({KINDS[name].group for name in self.kinds})


@dataclass
class ShareResults:
    """What a run has shown."""

    plan: SharePlan
    ends: dict[int, int] = field(default_factory=dict)
    """The number of records by partition."""
    seconds: float = 0
    outages: list[tuple[int, int]] = field(default_factory=list)
    """The times in ms at which the process was killed, and at which it served again."""
    events: Counter[str] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    """Runs of kafka-share-groups by outcome."""
    consumed: dict[str, Consumed] = field(default_factory=dict)
    log: StateLog | None = None
    compared: int = 0
    """The share partitions whose rows in the tables were compared."""
    wrong: list[str] = field(default_factory=list)
    """What must not have happened."""

    def outcomes(self, group: str) -> Counter[str]:
        """Return the records of a group by their last state."""
        found: Counter[str] = Counter()
        histories = {} if self.log is None else self.log.histories
        for (name, _), records in histories.items():
            for states in records.values() if name == group else ():
                state, count = states[-1]
                is_limit = state == ARCHIVED and count == MAX_DELIVERIES
                found["limit" if is_limit else {ACKNOWLEDGED: "accepted", ARCHIVED: "rejected"}.get(state, "open")] += 1
        return found

    def deliveries(self, group: str) -> int:
        """Return the number of deliveries that the members of a group have written."""
        return sum(map(len, self.consumed[group].deliveries.values()))

    def promises(self, group: str) -> int:
        """Return the number of acknowledgements that were successful before the lock expired."""
        return sum(map(len, self.consumed[group].promises.values()))
