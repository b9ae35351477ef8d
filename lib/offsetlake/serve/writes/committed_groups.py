"""The groups that one connection has committed to."""

from offsetlake.util.token_buckets import MAX_NAME_BYTES

MAX_COMMITTED_GROUPS = 256


class CommittedGroups:
    """The groups that a connection has committed to, up to MAX_COMMITTED_GROUPS of them: then it begins anew.

    `deferred` is the number of commits that wait for new topics, which no later commit of the connection may overtake.
    """

    __slots__ = ("_groups", "deferred")

    def __init__(self) -> None:
        self._groups: set[bytes] = set()
        self.deferred = 0

    def add(self, group: bytes) -> bool:
        """Add a group; return whether it is a new one, or was forgotten."""
        if group in self._groups:
            return False
        if len(self._groups) >= MAX_COMMITTED_GROUPS:
            self._groups.clear()
        if len(group) <= MAX_NAME_BYTES:
            self._groups.add(group)
        return True
