"""Messages about tables whose files are damaged or missing, with the command that repairs them."""

from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError, TableNotFoundError

from offsetlake.errors import LakeUnusable
from offsetlake.lake.definitions import STATE
from offsetlake.lake.delta.table_log import LostCommitError
from offsetlake.lake.location.location import Location


def damaged(lake: Location, table: str, why: str) -> LakeUnusable:
    """Return the error about a table of which commits or data files are damaged."""
    remedy = (
        f"run `offsetlake rebuild --table {table}`, which rebuilds it from history"
        if table in STATE
        else "what was written there is lost, unless a copy of the lake can be restored; otherwise read the log into a "
        "new lake, which has what the log still contains"
    )
    return LakeUnusable(f"table {table} of the lake {lake} is damaged, {why}: {remedy}")


@contextmanager
def named(lake: Location, table: str) -> Iterator[None]:
    """Raise LakeUnusable if a table is not found in the block, or cannot be read for its Delta log."""
    try:
        yield
    except TableNotFoundError as error:
        raise missing(lake, table) from error
    except LostCommitError as error:
        raise damaged(lake, table, str(error)) from error
    except DeltaError as error:
        if lake.explain(error):  # an error of the operating system or of the store, which says more
            raise
        raise unreadable(lake, table, error) from error


def missing(lake: Location, table: str) -> LakeUnusable:
    """Return the error about a table that has no Delta log."""
    remedy = (
        f"run `offsetlake rebuild --table {table}`, which rebuilds it from history"
        if table in STATE
        else "restore its folder, or read the log into a new lake"
    )
    return LakeUnusable(f"table {table} of the lake {lake} is missing: {remedy}")


def unreadable(lake: Location, table: str, error: Exception) -> LakeUnusable:
    """Return the error about a table whose Delta log delta-rs cannot read."""
    why = str(error).split("\n")[0].removeprefix("Kernel error: ")[:200]
    remedy = f"run `offsetlake rebuild --table {table}`, which " + (
        "rebuilds it from history" if table in STATE else "repairs its log if all of its commits are whole"
    )
    return LakeUnusable(f"table {table} of the lake {lake} is damaged, its Delta log cannot be read ({why}): {remedy}")
