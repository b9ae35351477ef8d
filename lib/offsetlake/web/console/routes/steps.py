"""The page that explains one step of an offset, and the data of the charts."""

from collections.abc import Sequence
from dataclasses import replace
from glob import escape
from typing import Any

import pyarrow as pa
from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from offsetlake.lake.sql.engine import quoted
from offsetlake.queries.exploring.series import Series
from offsetlake.util.times import to_iso
from offsetlake.web.console.access import Reader
from offsetlake.web.console.answers import BeforeChange, PageAnswers
from offsetlake.web.console.pages import page_response
from offsetlake.web.console.routes.parameters import Partition, Text, Times
from offsetlake.web.console.state import PageState, change_command, command_line
from offsetlake.web.console.words import author, consequence, group_words, headline, meaning

_MAX_PREVIEWED = 50


def add_routes(app: FastAPI, answers: PageAnswers, lake: str, source: Sequence[str]) -> None:
    """Add the routes to an application; commands on the pages name `lake`, those of changes the options `source`."""
    options = [*source] or [f"--lake={lake}"]

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
            restoring=None if old is None else _restoring(answers.before_change(shown, visitor, found), shown, options),
        )

    @app.get("/series")
    def series(visitor: Reader, times: Times, group: Text, topic: Text, partition: Partition) -> Response:
        shown = replace(times, group=group, topic=topic, partition=partition)
        return JSONResponse(_charts(answers.series(shown, visitor)))


def _restoring(before: BeforeChange, state: PageState, source: Sequence[str]) -> dict[str, Any]:
    """Return the plan that restores the offsets from before a change, and commands and forms for it.

    The partition of the page is first, then those whose offsets would change.
    """
    rows = before.rows.to_pylist()
    rows.sort(key=lambda row: (row["partition"] != state.partition, row["outcome"] == "unchanged", row["partition"]))
    at = "" if before.instant is None else to_iso(before.instant)
    moment = {"at": at} if at else {"before": str(before.position)}
    option = f"--as-of={at}" if at else f"--before={before.position}"
    form = {"kind": "restore", "group": state.group, "topic": state.topic, **moment}

    def command(topic: str) -> str:
        return change_command(("restore", option, f"--topic={topic}", "--", escape(state.group)), source)

    return {
        "at": at,
        "position": str(before.position),
        "rows": rows[:_MAX_PREVIEWED],
        "total": len(rows),
        "changed": sum(row["outcome"] != "unchanged" for row in rows),
        "of_partition": command(f"{state.topic}:{state.partition}"),
        "of_topic": command(state.topic),
        "partition_form": form | {"partitions": str(state.partition)},
        "topic_form": form,
    }


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
