"""Opens the lake once for each page, so that all of its answers are about the same versions of the tables."""

from contextvars import ContextVar

from offsetlake.lake.foreign.guard import VerifiedLake
from offsetlake.lake.lake import Lake

OPENED: ContextVar[dict["PageLake", Lake] | None] = ContextVar("opened", default=None)
"""The lakes that the page has opened; None for requests that change something, and outside of requests."""


class PageLake(VerifiedLake):
    """Opens a lake as it is when a page begins."""

    def open(self) -> Lake:
        """Return the lake as it was when the page opened it first; raise TableChanged as `VerifiedLake`."""
        opened = OPENED.get()
        if opened is None:
            return super().open()
        if self not in opened:
            opened[self] = super().open()
        return opened[self]
