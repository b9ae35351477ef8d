"""Finds data files of tables that are missing, cut or changed, after a query or a job failed to read one."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileType

from offsetlake.errors import LakeUnusable, OffsetlakeError
from offsetlake.lake.damage import damaged
from offsetlake.lake.definitions import TABLES
from offsetlake.lake.lake import Lake, lakes_in_use

FILE_ERRORS = (DeltaError, pa.ArrowException, OSError)
"""The errors of libraries that read files."""


@contextmanager
def naming_damage() -> Iterator[None]:
    """Raise LakeUnusable for an error in the block that damaged files of a lake in use explain."""
    try:
        yield
    except OffsetlakeError:
        raise
    except Exception as error:
        if found := damage_behind(error):
            raise found from error
        raise


def damage_behind(error: Exception) -> LakeUnusable | None:
    """Return the error about damaged files of a lake in use that explain another error; None if none do."""
    if not _may_be_of_files(error):
        return None
    return next(filter(None, (found_damage(lake, TABLES) for lake in lakes_in_use())), None)


def _may_be_of_files(error: Exception) -> bool:
    """Return whether an error is of Arrow, delta-rs, the operating system, or of a Spark task."""
    return isinstance(error, FILE_ERRORS) or type(error).__name__.endswith(
        ("PythonException", "PySparkException", "SparkException")
    )


def found_damage(lake: Lake, tables: Iterable[str]) -> LakeUnusable | None:
    """Return the error about the first of these tables with a damaged log or data file; None if there is none.

    All data files are read, but only if none is missing or has another size than its commit says.
    """
    try:
        for read in (False, True):
            for table in tables:
                if why := file_fault(lake, table, read=read):
                    return damaged(lake.location, table, why)
    except LakeUnusable as error:
        return error
    except (OffsetlakeError, *FILE_ERRORS):  # the first error says more
        return None
    return None


def refuse_damaged(lake: Lake, tables: Iterable[str]) -> None:
    """Read all data files of these tables; raise LakeUnusable if one is damaged."""
    for table in tables:
        if why := file_fault(lake, table, read=True):
            raise damaged(lake.location, table, why)


def file_fault(lake: Lake, table: str, *, read: bool) -> str:
    """Return what is wrong with the data files of a table; empty if nothing is.

    With `read`, the files are read and the checksums of their pages compared. Raises LakeUnusable if the Delta log is
    damaged.
    """
    location = lake.table_location(table)
    files = pa.table(lake.delta_table(table).get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pylist()
    sizes = {unquote(file["path"]): file["size_bytes"] for file in files}
    with location.errors():
        found = location.filesystem.get_file_info([location.path_of(path) for path in sizes]) if sizes else []
    for info, (path, size) in zip(found, sizes.items(), strict=True):
        if info.type == FileType.NotFound:
            return f"because its data file {path} is missing"
        if info.size != size:
            return f"because its data file {path} has {info.size:,} bytes, and should have {size:,}"
        if read and (why := _unreadable(location.filesystem.open_input_file(location.path_of(path)))):
            return f"because its data file {path} cannot be read ({why})"
    return ""


def _unreadable(file: pa.NativeFile) -> str:
    try:
        with file, pq.ParquetFile(file, page_checksum_verification=True) as parquet:
            for group in range(parquet.num_row_groups):
                for column in parquet.schema_arrow.names:  # all columns at once would need more memory
                    parquet.read_row_group(group, columns=[column], use_threads=False)
    except (pa.ArrowException, OSError) as error:
        return str(error).split("\n")[0][:200]
    return ""
