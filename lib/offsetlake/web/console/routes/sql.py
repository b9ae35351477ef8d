"""The page for SQL: a statement, its result as table, chart and CSV, and the tables and views with their comments."""

import asyncio
import csv
import io
import shlex
from dataclasses import dataclass
from typing import NamedTuple

from fastapi import FastAPI, Request, Response

from offsetlake.errors import BadRequest, NotEnoughMemory
from offsetlake.lake.definitions import TABLES, definition
from offsetlake.lake.location.locate import LakeLocation
from offsetlake.lake.sql.views import views
from offsetlake.web.console import forked
from offsetlake.web.console.access import ReaderOfAll
from offsetlake.web.console.pages import page_response
from offsetlake.web.console.routes.parameters import Text
from offsetlake.web.console.sql.queries import MAX_CSV_ROWS, MAX_ROWS, MAX_SECONDS, Queries, Result, marked_position
from offsetlake.web.console.state import PageState

FORMS = ("table", "chart")
FUNCTIONS = (
    "abs", "array_length", "avg", "coalesce", "count", "date_bin", "date_trunc", "first_value", "greatest", "lag",
    "last_value", "lead", "least", "length", "lower", "max", "median", "min", "nullif", "rank", "row_number", "round",
    "starts_with", "stddev", "string_agg", "substr", "sum", "to_timestamp_millis", "upper",
)  # fmt: skip
"""Functions of DataFusion that are proposed while typing; all others work, too."""

EXAMPLE = "SELECT group_id, count(*) AS offsets\nFROM offsets\nGROUP BY group_id\nORDER BY offsets DESC\nLIMIT 20"


class Relation(NamedTuple):
    """A table or a view, with its comment and those of its columns."""

    name: str
    comment: str
    columns: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlState(PageState):
    """What the page shows: a statement, and the form of its result."""

    statement: str = ""
    form: str = "table"

    def __post_init__(self) -> None:
        """Raise BadRequest for an unknown form."""
        if self.form not in FORMS:
            raise BadRequest(f"Invalid form {self.form!r}: expected one of {', '.join(FORMS)}.")


class Bar(NamedTuple):
    """A row of a chart; the width is at most 1000."""

    label: str
    value: int
    width: float


def add_routes(app: FastAPI, location: LakeLocation) -> None:
    """Add the routes; they require the permission to read all groups, which no statement could be limited to."""
    queries = Queries(location)

    @app.get("/sql")
    async def sql(_visitor: ReaderOfAll, request: Request, statement: Text = "", form: Text = "table") -> Response:
        state = SqlState(statement=statement.replace("\r\n", "\n").strip(), form=form)
        result, problem = None, ""
        if not state.statement:
            await asyncio.to_thread(forked.prepare)
        else:
            try:
                result = await queries.run(state.statement, MAX_ROWS, request.is_disconnected)
            except (BadRequest, NotEnoughMemory) as error:
                problem = str(error)
        command = shlex.join(["offsetlake", "sql", state.statement or EXAMPLE, f"--lake={location}"])
        response = page_response(
            "sql.html", state, command, result=result, problem=problem, example=EXAMPLE, relations=_relations(),
            position=marked_position(state.statement, problem), functions=FUNCTIONS, max_seconds=MAX_SECONDS,
            bars=_bars(result) if result and form == "chart" else [], forms=FORMS,
        )  # fmt: skip
        response.status_code = 400 if problem else 200
        return response

    @app.get("/sql.csv")
    async def as_csv(_visitor: ReaderOfAll, request: Request, statement: Text) -> Response:
        result = await queries.run(statement, MAX_CSV_ROWS, request.is_disconnected)
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerows([result.names, *result.rows])
        headers = {"Content-Disposition": 'attachment; filename="result.csv"'}
        return Response(file.getvalue(), media_type="text/csv", headers=headers)


def _relations() -> list[Relation]:
    """Return the tables, then the views."""
    tables = [definition(name) for name in TABLES]
    of_tables = [Relation(table.name, table.comment, table.column_comments) for table in tables]
    return [*of_tables, *(Relation(view.name, view.answers, view.columns) for view in views().values())]


def _bars(result: Result) -> list[Bar]:
    """Return a bar for each row: of the first number that is no label; the label is the first column."""
    column = next((index for index, is_number in enumerate(result.numeric) if is_number and index > 0), None)
    if column is None:
        return []
    values = [(row[0], float(row[column] or 0), row[column]) for row in result.rows]
    largest = max((abs(value) for _, value, _ in values), default=0) or 1
    return [Bar(str(label), shown, 1000 * abs(value) / largest) for label, value, shown in values]  # type: ignore[arg-type]
