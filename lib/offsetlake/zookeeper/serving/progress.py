"""How far ZooKeeper is behind the log, and how it differs from it, for metrics and log lines."""

import logging
import time
from itertools import islice

from offsetlake.serve.storage.changed_keys import ChangedKeys, Keys

LOG = logging.getLogger(__name__)
_MAX_LISTED_GROUPS = 3


class ZooKeeperProgress:
    """The state of dual commits.

    | Field        | Description |
    |--------------|-------------|
    | is_available | Whether ZooKeeper responded to the last request; None before the first |
    | written      | How many znodes were written or deleted |
    | compared     | How many offsets the last comparison compared; None before its end |
    """

    def __init__(self, changed: ChangedKeys, waiting: Keys, refused: Keys) -> None:
        self._changed, self._waiting, self._refused = changed, waiting, refused
        self._since: float | None = None
        self._reasons: dict[bytes, str] = {}
        self._different: dict[bytes, dict[bytes, int]] = {}
        self._previous = self._different
        self.is_available: bool | None = None
        self.written = 0
        self.compared: int | None = None

    @property
    def waiting(self) -> int:
        """The number of changed offsets that are not in ZooKeeper yet."""
        return len(self._changed) + sum(map(len, self._waiting.values()))

    @property
    def refused(self) -> int:
        """The number of changed offsets that cannot be written, because a group has active consumers for example."""
        return sum(map(len, self._refused.values()))

    @property
    def different(self) -> int:
        """The number of offsets that others have changed in ZooKeeper."""
        return sum(map(len, self._different.values()))

    @property
    def largest_difference(self) -> int:
        """The largest difference between the log and ZooKeeper of these offsets, in records."""
        return max((each for distances in self._different.values() for each in distances.values()), default=0)

    @property
    def seconds_behind(self) -> float:
        """The age of the oldest change that is not in ZooKeeper yet; 0 if there is none."""
        since = self._changed.since if self._since is None else self._since
        return 0.0 if since is None else time.monotonic() - since

    def taken(self, since: float | None) -> None:
        """Note that changes since this monotonic time are about to be written."""
        self._since = since if self._since is None else self._since

    def all_written(self) -> None:
        """Note that all changes that were taken are written."""
        self._since = None

    def unavailable(self, reason: str) -> None:
        """Note that ZooKeeper does not respond."""
        if self.is_available is not False:
            LOG.warning(
                "ZooKeeper cannot be used; commits go on, and ZooKeeper is brought up to date later: %(reason)s",
                {"reason": reason},
            )
        self.is_available = False

    def available(self) -> None:
        """Note that ZooKeeper has responded."""
        if self.is_available is False:
            LOG.info("ZooKeeper responds again: %(offsets)d changed offsets are waiting", {"offsets": self.waiting})
        self.is_available = True

    def refuse(self, group: bytes, reason: str) -> None:
        """Note that offsets of a group cannot be written."""
        if self._reasons.get(group) != reason:
            self._reasons[group] = reason
            LOG.warning(
                "The offsets of the group %(group)s are not written to ZooKeeper, but tried again: %(reason)s",
                {"group": group.decode(errors="replace"), "reason": reason},
            )

    def note_written(self, group: bytes, keys: set[bytes]) -> None:
        """Note that offsets of a group were written."""
        self._reasons.pop(group, None)
        if group in self._different:
            for name in keys:
                self._different[group].pop(name, None)
            if not self._different[group]:
                del self._different[group]

    def begin_comparison(self) -> None:
        """Forget the differences that the last comparison found."""
        self._previous, self._different = self._different, {}

    def differ(self, group: bytes, key: bytes, offset: int | None, committed: int | None) -> None:
        """Note that the znode of a key has another offset than the log, or none."""
        self._different.setdefault(group, {})[key] = abs((offset or 0) - (committed or 0))

    def end_comparison(self, compared: int) -> None:
        """Log the result of a comparison if it is new."""
        is_first, self.compared = self.compared is None, compared
        fields = {"offsets": compared, "different": self.different, "groups": ""}
        if self._different and self._different != self._previous:
            names = ", ".join(name.decode(errors="replace") for name in islice(self._different, _MAX_LISTED_GROUPS))
            more = len(self._different) - _MAX_LISTED_GROUPS
            fields["groups"] = f"{names} and {more} more" if more > 0 else names
            LOG.warning(
                "%(different)d of %(offsets)d offsets differ in ZooKeeper, where others have changed them: of the "
                "groups %(groups)s. They are kept until the next commit; `offsetlake export` shows and replaces them",
                fields,
            )
        elif is_first and not self._different:
            LOG.info("ZooKeeper has the same %(offsets)d offsets as the log", fields)
