"""Chooses the least and the most loaded members, for the assignor of members with different subscriptions."""


class LoadRanges:
    """Two ranges of members in ascending order of their load.

    Members of the least loaded range receive partitions in turn: when each member has received one, the load of the
    range is one greater, and the range grows by the members that have this load. Members of the most loaded range give
    partitions in turn, likewise. The loads are current.
    """

    def __init__(self, members: list[int], loads: list[int]) -> None:
        self._members = sorted(members, key=lambda member: (loads[member], member))
        self._loads = loads
        lowest, highest = self._load(0), self._load(-1)
        self.imbalance = highest - lowest
        self._least_end, self._least_load, self._next_least = 0, lowest - 1, 0
        last = len(members)
        self._most_start, self._most_end, self._most_load, self._next_most = last, last, highest + 1, last - 1

    def is_balanced(self) -> bool:
        """Return whether moving a partition between the ranges would not improve the balance."""
        return self._most_load - self._least_load <= 1

    def next_least_loaded(self) -> int:
        """Return the next member that receives a partition."""
        if self._next_least >= self._least_end:
            self._least_load += 1
            while self._least_end < len(self._members) and self._load(self._least_end) == self._least_load:
                self._least_end += 1
            self._next_least = 0
        self._next_least += 1
        return self._members[self._next_least - 1]

    def next_most_loaded(self) -> int | None:
        """Return the next member that gives a partition, None if no member can."""
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                self._most_load = self._load(self._most_start - 1)  # all members of the range were excluded
            else:
                self._most_load -= 1
            while self._most_start > 0 and self._load(self._most_start - 1) == self._most_load:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return None
        self._next_most -= 1
        return self._members[self._next_most + 1]

    def exclude_most_loaded(self) -> None:
        """Remove the member that `next_most_loaded` returned from the range: it has no partition to give."""
        excluded, last = self._next_most + 1, self._most_end - 1
        self._members[excluded], self._members[last] = self._members[last], self._members[excluded]
        self._most_end -= 1

    def _load(self, index: int) -> int:
        return self._loads[self._members[index]]
