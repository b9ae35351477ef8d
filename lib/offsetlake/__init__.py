"""Consumer offsets as a lakehouse: the offset commit log in Delta tables.

For questions: `offsetlake.open(lake)`. For the newest offsets with the end of the log: `offsetlake.open_snapshot(lake,
log)`. For SQL in a Spark session of one's own: `offsetlake.register_views(spark, lake)`. All are described in
`docs/python-api.md`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from offsetlake.errors import (
    BadRequest,
    CheckFailed,
    CorruptBatch,
    LakeBusy,
    LakeUnusable,
    LogBusy,
    LogMismatch,
    LogUnavailable,
    NotEnoughMemory,
    NotInLake,
    NotInstalled,
    NotRead,
    OffsetlakeError,
    Refused,
    TableChanged,
    UndecodableRecord,
)

if TYPE_CHECKING:
    from offsetlake.api.open_lake import open_lake as open  # noqa: A004 - a name of this package, as in gzip
    from offsetlake.lake.sql.spark_views import register_views
    from offsetlake.pipeline.compact.snapshot import open_snapshot
    from offsetlake.queries.answer_notes import notes

    __version__: str

__all__ = [
    "BadRequest",
    "CheckFailed",
    "CorruptBatch",
    "LakeBusy",
    "LakeUnusable",
    "LogBusy",
    "LogMismatch",
    "LogUnavailable",
    "NotEnoughMemory",
    "NotInLake",
    "NotInstalled",
    "NotRead",
    "OffsetlakeError",
    "Refused",
    "TableChanged",
    "UndecodableRecord",
    "__version__",
    "notes",
    "open",
    "open_snapshot",
    "register_views",
]

_LATER = {
    "notes": ("offsetlake.queries.answer_notes", "notes"),
    "open": ("offsetlake.api.open_lake", "open_lake"),
    "open_snapshot": ("offsetlake.pipeline.compact.snapshot", "open_snapshot"),
    "register_views": ("offsetlake.lake.sql.spark_views", "register_views"),
}
"""Modules and names of what is imported when it is used: the serving process must not load what it needs."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("offsetlake.util.program").program_version()
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATER[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
