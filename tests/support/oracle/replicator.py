"""A model of a replicator that copies one partition to another cluster, record by record."""

from dataclasses import dataclass, field
from typing import Literal

Event = Literal["copy", "sync", "omit", "crash", "recreate"]


@dataclass
class Replica:
    """A partition at the target: the source offset of each of its records, and the offset syncs that were written.

    The offset syncs are pairs of upstream and downstream offset in the order in which they were written.
    """

    records: list[int] = field(default_factory=list)
    syncs: list[tuple[int, int]] = field(default_factory=list)
    position: int = 0
    stored: int = 0
    must_sync: bool = True

    def apply(self, event: Event) -> None:
        """Copy or omit the next record, restart at the stored position, or create the topic of the target again.

        As in MirrorMaker 2, an offset sync is written for the first record after a restart, and for any other one.
        """
        if event == "crash":
            self.position, self.must_sync = self.stored, True
        elif event == "recreate":
            self.records, self.must_sync = [], True
        elif event == "omit":
            self.position += 1
            self.must_sync = True  # the offsets of source and target now differ otherwise
        else:
            if self.must_sync or event == "sync":
                self.syncs.append((self.position, len(self.records)))
                self.must_sync = False
            self.records.append(self.position)
            self.position += 1

    def store(self) -> None:
        """Store the position, from which the replicator continues after a crash."""
        self.stored = self.position

    def loses(self, offset: int, at_target: int) -> bool:
        """Return whether a consumer that continues at the target misses a record from an offset of the source on."""
        return {each for each in self.records if each >= offset} > {
            each for each in self.records[at_target:] if each >= offset
        }

    def read_twice(self, offset: int, at_target: int) -> int:
        """Return how many records before an offset of the source a consumer reads that continues at the target."""
        return sum(each < offset for each in self.records[at_target:])
