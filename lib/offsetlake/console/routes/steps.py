"""The page that explains one step of an offset, and the data of the charts."""

from dataclasses import replace
from glob import escape
from shlex import quote
from typing import Any

import pyarrow as pa
from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from offsetlake.console.access import Reader
from offsetlake.console.answers import Answers
from offsetlake.console.pages import page_response
from offsetlake.console.routes.parameters import Partition, Text, Times
from offsetlake.console.state import command_line
from offsetlake.console.words import author, consequence, group_words, headline, meaning
from offsetlake.lake.sql.engine import quoted
from offsetlake.queries.exploring.series import Series
from offsetlake.util.times import to_iso


def add_routes(app: FastAPI, answers: Answers, lake: str) -> None:
    """Add the routes to an application; commands on the pages name `lake`."""

    @app.get("/step")
    def step(visitor: Reader, times: Times, group: Text, topic: Text, partition: Partition, record: Text) -> Response:
        shown = replace(times, group=group, topic=topic, partition=partition, record=record)
        found = answers.step(shown, visitor)
        change = found.change or {}
        old, new = change.get("old_offset"), change.get("new_offset", found.record["committed_offset"])
        where = (
            f"group_id = {quoted(group)} AND topic = {quoted(topic)} AND partition = {partition} "
            f"AND log_partition = {found.record['log_partition']} AND log_offset = {found.record['log_offset']}"
        )
        before = found.before["log_timestamp"] if found.before else None
        return page_response(
            "step.html",
            shown,
            command_line("sql", f"SELECT * FROM changes WHERE {where}", lake=lake),  # noqa: S608
            step=found,
            headline=headline(old, new) if change else "This record had no effect",
            consequence=consequence(old, new, change["change"]) if change else "",
            meaning=meaning(found),
            author=author(found),
            group_words=group_words(found),
            restore=None
            if before is None or not change
            else f"{command_line('restore', topic=topic, as_of=to_iso(before), lake=lake)} -- {quote(escape(group))}",
        )

    @app.get("/series")
    def series(visitor: Reader, times: Times, group: Text, topic: Text, partition: Partition) -> Response:
        shown = replace(times, group=group, topic=topic, partition=partition)
        return JSONResponse(_charts(answers.series(shown, visitor)))


def _charts(series: Series) -> dict[str, Any]:
    marks = zip(series.marks.to_pylist(), _positions(series.marks), strict=True)
    return {
        "period": series.period,
        "commits": series.commits,
        "steps": {
            **_columns(series.steps, time="effective_timestamp", offset="new_offset"),
            "record": _positions(series.steps),
        },
        "marks": [
            {
                "time": mark["effective_timestamp"],
                "change": mark["change"],
                "old": mark["old_offset"],
                "new": mark["new_offset"],
                "who": mark["principal"],
                "record": position,
            }
            for mark, position in marks
        ],
        "more_marks": series.more_marks,
        "rebalances": series.rebalances.tolist(),
        "ends": _columns(series.ends, time="asked_timestamp", offset="end_offset", lag="lag"),
        "density": series.density.tolist(),
    }


def _columns(rows: pa.Table, **names: str) -> dict[str, Any]:
    return {name: rows[column].to_pylist() for name, column in names.items()}


def _positions(rows: pa.Table) -> list[str]:
    places = zip(rows["log_partition"].to_pylist(), rows["log_offset"].to_pylist(), strict=True)
    return [f"{partition}:{offset}" for partition, offset in places]
