"""Consumer offsets as a lakehouse: the offset commit log in Delta tables.

For programs that only read: `offsetlake.open_snapshot(lake, log)`; for SQL in a Spark session of one's own:
`offsetlake.register_views(spark, lake)`. Both are described in `docs/python-api.md`.
"""

import os
from typing import TYPE_CHECKING, Any

# Arrow's default allocator returns memory to the kernel and requests it again: a snapshot of ten million offsets takes
# 6 s instead of 2 s with the allocator of the C library. Child processes inherit the setting.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

# The allocator in delta-rs keeps freed memory for 10 s, and longer if no query follows. With 0.2 s, the first page of
# the console over ten million offsets leaves 120 MB less, in the same time.
os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:200,muzzy_decay_ms:0")

if TYPE_CHECKING:
    from offsetlake.lake.sql.spark_views import register_views
    from offsetlake.pipeline.compact.snapshot import open_snapshot

__all__ = ["open_snapshot", "register_views"]


def __getattr__(name: str) -> Any:
    if name == "open_snapshot":  # when it is asked for: the serving process must not load what it needs
        from offsetlake.pipeline.compact.snapshot import open_snapshot  # noqa: PLC0415

        return open_snapshot
    if name == "register_views":
        from offsetlake.lake.sql.spark_views import register_views  # noqa: PLC0415

        return register_views
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
