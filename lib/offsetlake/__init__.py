"""Consumer offsets as a lakehouse: the offset commit log in Delta tables.

For programs that only read: `offsetlake.open_snapshot(lake, log)`, see `offsetlake.pipeline.snapshot`; for SQL in a
Spark session of one's own: `offsetlake.register_views(spark, lake)`, see `offsetlake.lake.spark_views`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offsetlake.lake.spark_views import register_views
    from offsetlake.pipeline.snapshot import open_snapshot

__all__ = ["open_snapshot", "register_views"]


def __getattr__(name: str) -> Any:
    if name == "open_snapshot":  # when it is asked for: the serving process must not load what it needs
        from offsetlake.pipeline.snapshot import open_snapshot  # noqa: PLC0415

        return open_snapshot
    if name == "register_views":
        from offsetlake.lake.spark_views import register_views  # noqa: PLC0415

        return register_views
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
