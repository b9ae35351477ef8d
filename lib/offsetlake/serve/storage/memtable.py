"""The changes of groups since the mapped snapshot."""


class OffsetChanges:
    """The changes of one group in one memtable: offsets by key, and whether the layers below are hidden.

    | Field             | Description |
    |-------------------|-------------|
    | offsets           | Stored offsets and tombstones by key |
    | hides_older       | The group was deleted: its entries in the layers below do not count |
    | exists            | The group exists because of this memtable |
    | accepts_commits   | A commit without a member was accepted, so that the next one will be, too |
    """

    __slots__ = ("accepts_commits", "exists", "hides_older", "offsets")

    def __init__(self) -> None:
        self.offsets: dict[bytes, bytes] = {}
        self.hides_older = False
        self.exists = False
        self.accepts_commits = False

    def add(self, newer: "OffsetChanges") -> None:
        """Apply newer changes of the same group."""
        if newer.hides_older:
            self.offsets, self.hides_older, self.exists, self.accepts_commits = {}, True, False, False
        self.offsets |= newer.offsets
        self.exists |= newer.exists
        self.accepts_commits |= newer.accepts_commits


Memtable = dict[bytes, OffsetChanges]
