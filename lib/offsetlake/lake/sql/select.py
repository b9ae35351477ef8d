"""Runs SELECT statements of users over a lake, and our own over older versions of tables. They only read."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from deltalake.exceptions import DeltaError

from offsetlake.errors import BadRequest, LakeUnusable
from offsetlake.lake.data_files import found_damage
from offsetlake.lake.definitions import TABLES
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.answers import Answer, kept
from offsetlake.lake.sql.engine import SPILLING, Engine
from offsetlake.lake.sql.views import named_in, needed, views
from offsetlake.util.suggestions import did_you_mean

_OF_A_FILE = re.compile("Parquet (argument )?error|Object Store error|is damaged")
_READS = re.compile(r"(\s|--[^\n]*\n|/\*.*?\*/)*(SELECT\b|WITH\b|VALUES\b|\()", re.IGNORECASE | re.DOTALL)

_SYNTAX_ERROR = re.compile(r'SQL error: (?:Parser|Tokenizer)Error\("(.*)"\)', re.DOTALL)
_NO_FUNCTION = re.compile(r"(No function matches .*)\n\tCandidate functions:((?:\n\t.*){0,8})")
"""The sentence about the types of arguments, with the first functions that exist, in a message that repeats them."""
_NO_TABLE = re.compile(r"table '(?:datafusion\.\w+\.)?(.+?)' not found")
_COMPARES_A_TIME = re.compile(r"\bTimestamp\(.*\bU?Int(?:32|64)\b|\bU?Int(?:32|64)\b.*\bTimestamp\(")
_WRAPPING = re.compile(
    r"^type_coercion\ncaused by\n|(?:Error during planning|Internal error): |\nThis issue was likely .*", re.DOTALL
)
_TIMES = "Times are timestamps: compare with '2026-11-21T05:38:54', or CAST(column AS BIGINT) with milliseconds."
_SEVERAL = "only supports a single SQL statement"
_ESCAPED = re.compile(r"\\([\"\\])")
_LINE = re.compile(r"Line: (\d+)")


def select(lake: Lake, statement: str, settings: Mapping[str, str] = SPILLING) -> Answer:
    """Run a SELECT over tables and views, in which times are timestamps in UTC.

    Raises BadRequest with the message of the engine if it is invalid.
    """
    query = statement.strip().rstrip(";")
    if not _READS.match(query):
        raise BadRequest(f"only SELECT statements are allowed, over the tables {', '.join(TABLES)}")
    words = set(re.findall(r"\w+", query))  # to open all tables takes longer than most queries
    tables, named = words.intersection(lake.tables()), named_in(query)
    engine = lake.engine((*tables, *named), {}, settings=settings)
    columns = {name: [*views()[name].columns] for name in named}
    columns |= {name: [field.name for field in lake.delta_table(name).schema().fields] for name in tables}
    engine.use_timestamps(columns)
    try:
        # Neither a statement that writes nor a second statement is valid in parentheses.
        _check(engine, query)
        return kept(_distinct(engine.stream(query)))
    except (DeltaError, pa.ArrowException) as error:
        _raise_damage(lake, (*tables, *named), error)
        raise BadRequest(_plain(str(error))) from error


def _raise_damage(lake: Lake, names: Iterable[str], error: Exception) -> None:
    """Raise LakeUnusable if an error is that of reading a file, and a file of one of the tables is damaged."""
    if _OF_A_FILE.search(str(error)) and (found := found_damage(lake, sorted(needed(names)[0]))):
        raise found from error


def _plain(message: str) -> str:
    """Return a message of the engine without the notation of Rust, and without all signatures that do not match."""
    if unknown := _NO_TABLE.search(message):
        return _unknown_table(unknown[1])
    if unmatched := _NO_FUNCTION.search(message):
        candidates = ", ".join(line.strip() for line in unmatched[2].strip().splitlines())
        return f"{unmatched[1]} Candidate functions: {candidates}."
    if _COMPARES_A_TIME.search(message):
        return f"{_WRAPPING.sub('', message).rstrip('.')}. {_TIMES}"
    if _SEVERAL in message:
        return "Only one SELECT statement is allowed."
    wrapped = _SYNTAX_ERROR.fullmatch(message)
    if wrapped is None:
        return message
    return "Syntax error: " + _ESCAPED.sub(r"\1", wrapped[1]).replace("found: EOF", "found: the end of the statement")


def _unknown_table(name: str) -> str:
    """Return the sentence that there is no such table, with the most similar name or, if there is none, all names."""
    known = f" Tables are {', '.join(TABLES)}; views are {', '.join(sorted(views()))}."
    return f"There is no table or view {name!r}.{did_you_mean(name, [*TABLES, *views()]) or known}"


def _check(engine: Engine, query: str) -> None:
    """Raise DeltaError if a query is not one SELECT, with the line and column of a syntax error in the query."""
    try:
        # Neither a statement that writes nor a second statement is valid in parentheses.
        engine.query(f"EXPLAIN SELECT * FROM ({query}\n)")  # noqa: S608
    except DeltaError:
        try:  # the parser gives up in parentheses before the error; this executes nothing either
            engine.query(f"EXPLAIN\n{query}")
        except DeltaError as error:
            message = _LINE.sub(lambda line: f"Line: {int(line[1]) - 1}", str(error))
            raise DeltaError(message) from error
        raise


def select_at(lake: Lake, statement: str, versions: Mapping[str, int]) -> pa.Table:
    """Run a SELECT over tables at these Delta versions; raise LakeUnusable if one cannot be read."""
    with readable(lake, versions):
        return lake.query(statement, **versions)


@contextmanager
def readable(lake: Lake, versions: Mapping[str, int]) -> Iterator[None]:
    """Raise LakeUnusable if tables cannot be read at these Delta versions."""
    try:
        yield
    except (DeltaError, pa.ArrowException, LakeUnusable) as error:
        _raise_damage(lake, versions, error)
        pins = ",".join(f"{table}={version}" for table, version in versions.items())
        raise LakeUnusable(
            f"the lake {lake.location} cannot be read at versions {pins}: {error}. `offsetlake maintain` removes the "
            "files of old versions, and versions of an older offsetlake may lack columns: use newer versions"
        ) from error


def _distinct(found: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Rename columns that have the same name, as joins return them: `group_id`, `group_id_2`."""
    names: list[str] = []
    for name in found.schema.names:
        same = found.schema.names[: len(names)].count(name)
        names.append(f"{name}_{same + 1}" if same else name)
    fields = [field.with_name(name) for field, name in zip(found.schema, names, strict=True)]
    batches = (pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields)) for batch in found)
    return pa.RecordBatchReader.from_batches(pa.schema(fields), batches)
