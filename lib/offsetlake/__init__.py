"""Consumer offsets as a lakehouse: the offset commit log in Delta tables.

For programs that only read: `offsetlake.open_snapshot(lake, log)`, see `offsetlake.pipeline.snapshot`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offsetlake.pipeline.snapshot import open_snapshot

__all__ = ["open_snapshot"]


def __getattr__(name: str) -> Any:
    if name == "open_snapshot":  # when it is asked for: the serving process must not load what it needs
        from offsetlake.pipeline.snapshot import open_snapshot  # noqa: PLC0415

        return open_snapshot
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
