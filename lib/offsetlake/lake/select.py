"""Any SELECT a person writes, over all tables and views of a lake; ours over tables of the past. They only read."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from deltalake.exceptions import DeltaError

from offsetlake.errors import BadRequest, LakeUnusable
from offsetlake.lake.answers import Answer, kept
from offsetlake.lake.definitions import TABLES
from offsetlake.lake.engine import SPILLING
from offsetlake.lake.lake import Lake
from offsetlake.lake.views import named_in, views

_READS = re.compile(r"(\s|--[^\n]*\n|/\*.*?\*/)*(SELECT\b|WITH\b|VALUES\b|\()", re.IGNORECASE | re.DOTALL)


def select(lake: Lake, statement: str) -> Answer:
    """Answer any SELECT over tables and views; BadRequest, with the engine's words, where it is none or is wrong."""
    query = statement.strip().rstrip(";")
    if not _READS.match(query):
        raise BadRequest(f"only SELECT is answered, over the tables {', '.join(TABLES)}")
    engine = lake.engine((*lake.tables(), *named_in(query)), {}, settings=SPILLING)
    try:
        # Nothing that writes can stand in parentheses, nor can a second statement.
        engine.query(f"EXPLAIN SELECT * FROM ({query}\n)")  # noqa: S608
        return kept(_distinct(engine.stream(query)))
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


def _distinct(found: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Tell columns of the same name apart, as a join gives them: `group_id`, `group_id_2`."""
    names: list[str] = []
    for name in found.schema.names:
        same = found.schema.names[: len(names)].count(name)
        names.append(f"{name}_{same + 1}" if same else name)
    fields = [field.with_name(name) for field, name in zip(found.schema, names, strict=True)]
    batches = (pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields)) for batch in found)
    return pa.RecordBatchReader.from_batches(pa.schema(fields), batches)
