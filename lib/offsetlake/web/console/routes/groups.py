"""The pages of groups, of a group, and of a partition."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from glob import escape
from typing import Any

import pyarrow as pa
from fastapi import FastAPI, Response
from fastapi.responses import RedirectResponse

from offsetlake.errors import NotInLake
from offsetlake.queries.lag import lag_of_groups
from offsetlake.queries.selection import STATES
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.util.times import to_iso
from offsetlake.web.console.access import Reader, Visitor
from offsetlake.web.console.answers import PageAnswers
from offsetlake.web.console.drawing import draw
from offsetlake.web.console.pages import page_response
from offsetlake.web.console.routes.parameters import EnteredTimes, Partition, Text
from offsetlake.web.console.state import PAGE_ROWS, PageState, command_line

_MAX_CHARTS = 4
_MAX_MEMBERS = 100
_EVENTS = (("commit", "commits"), ("reset", "reset, not back"), ("reset_back", "set back"), ("tombstone", "deleted"))


def add_routes(app: FastAPI, answers: PageAnswers, lake: str, policy: RetentionPolicy) -> None:
    """Add the routes; commands on the pages name `lake`, and offsets expire with `policy`."""

    @app.get("/")
    def groups(
        visitor: Reader, times: EnteredTimes, q: Text = "", state: Text = "", sort: Text = "group_id", page: int = 1
    ) -> Response:
        shown = replace(times, q=q, state=state, sort=sort, page=page)
        listed = answers.groups(shown, visitor)
        if shown.second:
            command = command_line("diff", **shown.span_options, lake=lake)
        else:
            options = {"group": shown.pattern, "state": state or None, "as_of": shown.at or None}
            command = command_line("groups", **options, lake=lake)
        total = 0 if listed is None else listed.total
        return _page(
            answers, "groups.html", shown, visitor, command, rows=None if listed is None else listed.rows.to_pylist(),
            total=total, more=total > page * PAGE_ROWS, states=STATES,
            by_state={} if listed is None else listed.by_state,
            is_complete=listed is not None and listed.has_lags,
            lag_problem="" if listed is None else listed.lag_problem,
            has_lag=listed is not None and "lag" in listed.rows.column_names,
            has_attention=visitor.access.sees_all() and replace(shown, sort="group_id", page=1) == PageState(),
        )  # fmt: skip

    @app.get("/group")
    def group(visitor: Reader, times: EnteredTimes, group: Text, page: int = 1) -> Response:
        shown = replace(times, group=group, page=page)
        try:
            offsets, total = answers.group(shown, visitor)
        except NotInLake:
            if visitor.sees(group) and answers.is_share_group(group):
                return RedirectResponse(shown.elsewhere("/share-group", group=group), 303)
            raise
        return _group_page(answers, shown, visitor, policy, lake, offsets, total)

    @app.get("/partition")
    def partition(
        visitor: Reader,
        times: EnteredTimes,
        group: Text,
        topic: Text,
        partition: Partition,
        event: Text = "",
        who: Text = "",
        before: Text = "",
    ) -> Response:
        shown = replace(times, event=event, who=who, before=before, group=group, topic=topic, partition=partition)
        commits, more = answers.commits(shown, visitor)
        since, until = (None if bound is None else to_iso(bound) for bound in shown.period_ms)
        command = command_line(
            "history", group=group, topic=topic, partition=partition, event=event or None, who=who or None, since=since,
            until=until, lake=lake,
        )  # fmt: skip
        return _page(
            answers, "partition.html", shown, visitor, command, rows=commits.to_pylist(), more=more, events=_EVENTS,
            charted=[(topic, partition)],
        )  # fmt: skip


def _group_page(
    answers: PageAnswers,
    shown: PageState,
    visitor: Visitor,
    policy: RetentionPolicy,
    lake: str,
    offsets: pa.Table,
    total: int,
) -> Response:
    """Return the page of a group with some of its offsets, of which it has `total`."""
    rows, has_views = offsets.to_pylist(), answers.has_views()
    notable, all_notable = answers.notable(shown, visitor) if has_views else (None, 0)
    changes = [] if notable is None else notable.to_pylist()
    described, members = answers.members(shown, visitor)
    expiring = [] if shown.at or not has_views else answers.expiry(offsets, described, policy).to_pylist()
    if shown.second:
        command = command_line("diff", **shown.span_options, group=shown.group, lake=lake)
    else:
        command = command_line("offsets", group=shown.group, as_of=shown.at or None, lake=lake)
    lags, lag_problem = (None, "") if shown.at else answers.group_lag(shown, visitor)
    return _page(
        answers, "group.html", shown, visitor, command, rows=rows, **_lags(lags, rows, shown), lag_problem=lag_problem,
        is_complete=bool(shown.at) or lags is not None, total=total, more=total > shown.page * PAGE_ROWS,
        described=described, members=members[:_MAX_MEMBERS],
        expiry={(row["topic"], row["partition"]): row for row in expiring},
        changes=changes, has_views=has_views, all_changes=all_notable,
        charted=_charted(changes, rows) if has_views else [], max_charts=_MAX_CHARTS,
        changes_command=command_line("audit", "changes", group=escape(shown.group), lake=lake),
    )  # fmt: skip


def _lags(lags: pa.Table | None, rows: Sequence[Mapping[str, Any]], shown: PageState) -> dict[str, Any]:
    """Return the lags of a group by topic and partition, that of the group, and the partitions without a commit.

    The latter are on the first page.
    """
    if lags is None or not lags.num_rows:
        return {"lags": {}, "lag": None, "uncommitted": []}
    every = lags.to_pylist()
    (of_group,) = lag_of_groups(lags).to_pylist()
    committed = {(row["topic"], row["partition"]) for row in rows}
    uncommitted = [row for row in every if row["committed_offset"] is None and _offset(row) not in committed]
    return {
        "lags": {_offset(row): row for row in every},
        "lag": of_group,
        "uncommitted": uncommitted[:PAGE_ROWS] if shown.page == 1 else [],
    }


def _offset(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["topic"], row["partition"]


def _page(
    answers: PageAnswers,
    template: str,
    shown: PageState,
    visitor: Visitor,
    command: str,
    *,
    is_complete: bool = True,
    **values: Any,
) -> Response:
    """Return a page with the time of the log, which loads itself again until all of its answers are computed."""
    timeline, has_timeline = None, True
    if visitor.access.sees_all():  # the timeline counts the commits of all groups
        timeline, has_timeline = answers.timeline()
    drawing = None if timeline is None else draw(timeline, [shown.at_ms, shown.second_ms])
    again_after = None if has_timeline and is_complete and values["rows"] is not None else 1
    return page_response(template, shown, command, again_after, timeline=drawing, is_complete=is_complete, **values)


def _charted(changes: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Return the partitions in the order in which the first are drawn: those with notable changes first."""
    return [*dict.fromkeys((row["topic"], row["partition"]) for row in (*changes, *rows))]
