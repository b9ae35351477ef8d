"""Any SELECT a person writes, over all tables and views of a lake; ours over tables of the past. They only read."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from deltalake.exceptions import DeltaError

from offsetlake.errors import BadRequest, LakeUnusable
from offsetlake.lake.definitions import TABLES
from offsetlake.lake.lake import Lake
from offsetlake.lake.views import views

_READS = re.compile(r"(\s|--[^\n]*\n|/\*.*?\*/)*(SELECT\b|WITH\b|VALUES\b|\()", re.IGNORECASE | re.DOTALL)


def select(lake: Lake, statement: str) -> pa.Table:
    """Answer any SELECT over tables and views; BadRequest, with the engine's words, where it is none or is wrong."""
    query = statement.strip().rstrip(";")
    if not _READS.match(query):
        raise BadRequest(f"only SELECT is answered, over the tables {', '.join(TABLES)}")
    try:
        # Nothing that writes can stand in parentheses, nor can a second statement.
        lake.query(f"EXPLAIN SELECT * FROM ({query}\n)")  # noqa: S608
        return _distinct(lake.query(query))
    except (DeltaError, pa.ArrowException) as error:
        known = f"; tables are {', '.join(TABLES)}; views are {', '.join(sorted(views()))}"
        hint = known if "not found" in str(error) else ""
        raise BadRequest(f"{error}{hint}") from error


def select_at(lake: Lake, statement: str, versions: Mapping[str, int]) -> pa.Table:
    """Answer a SELECT of ours over tables at these Delta versions; LakeUnusable where one cannot be read."""
    with readable(lake, versions):
        return lake.query(statement, **versions)


@contextmanager
def readable(lake: Lake, versions: Mapping[str, int]) -> Iterator[None]:
    """Raise LakeUnusable where tables cannot be read at these Delta versions."""
    try:
        yield
    except (DeltaError, pa.ArrowException, LakeUnusable) as error:
        at = ",".join(f"{table}={version}" for table, version in versions.items())
        raise LakeUnusable(
            f"the lake {lake.path} cannot be read at versions {at}: {error}. Files that only old versions name go with "
            "`offsetlake maintain`, and versions of an older offsetlake may lack columns: ask of newer ones"
        ) from error


def _distinct(found: pa.Table) -> pa.Table:
    """Tell columns of the same name apart, as a join gives them: `group_id`, `group_id_2`."""
    names: list[str] = []
    for name in found.column_names:
        same = sum(1 for before in found.column_names[: len(names)] if before == name)
        names.append(f"{name}_{same + 1}" if same else name)
    return found.rename_columns(names)
