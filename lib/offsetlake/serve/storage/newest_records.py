"""The newest record of each group that is written while somebody decides about groups."""


class NewestRecords:
    """The log offset of the newest record of each group since the first watcher began."""

    def __init__(self) -> None:
        self._watchers = 0
        self._newest: dict[bytes, int] = {}

    def watch(self) -> None:
        """Start to remember which groups are written to, for one more watcher that decides about groups."""
        self._watchers += 1

    def unwatch(self) -> None:
        """End the watch of one watcher."""
        self._watchers -= 1
        if not self._watchers:
            self._newest = {}

    def of(self, group: bytes) -> int:
        """Return the log offset of the newest record of a group since `watch`, or -1 if there is none."""
        return self._newest.get(group, -1)

    def note(self, group: bytes, log_offset: int) -> None:
        """Remember the newest record of a group, if there is a watcher."""
        if self._watchers:
            self._newest[group] = log_offset
