"""Changes of offsets while the members of their groups run, which the process that serves the log makes."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from offsetlake.log.writer.served_log import served

LIMIT = "rewind_seconds"
"""The column of plans with the time after which members that do not respond are removed; null without members."""


class LiveChange(NamedTuple):
    """How groups with members are changed.

    | Field | Description |
    |-------|-------------|
    | folder | The folder of the log |
    | replaces_commits | Whether their offsets are set although they were committed since what is undone |
    """

    folder: Path
    replaces_commits: bool = False

    def limits(self, groups: Collection[str]) -> dict[str, int]:
        """Return after how many seconds members that do not respond are removed, by group with members.

        No group has members if no process serves the log.

        Raises:
            LogBusy: The server is still loading the log.
            LogUnavailable: The job socket cannot be used.
        """
        with served(self.folder) as job_socket:
            found = {} if job_socket is None else {name: job_socket.rewind_limit_ms(name) for name in groups}
        return {name: -(-limit_ms // 1000) for name, limit_ms in found.items() if limit_ms is not None}
