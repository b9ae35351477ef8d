"""The review of planned tombstones, orphans, incomplete commits and hanging transactions."""

from collections import Counter
from collections.abc import Sequence
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc
from fastapi import FastAPI, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from offsetlake.errors import BadRequest
from offsetlake.lake.definitions import definition
from offsetlake.web.console.access import Change, Reader
from offsetlake.web.console.answers import PageAnswers
from offsetlake.web.console.changing.decisions import decide_on
from offsetlake.web.console.changing.review import (
    SUBJECTS,
    UNUSED_TOPICS,
    approval_problem,
    counts,
    described,
    heading,
    key_of,
    listed,
    selection,
    text,
)
from offsetlake.web.console.changing.workbench import Workbench
from offsetlake.web.console.pages import page_response
from offsetlake.web.console.routes.parameters import Text
from offsetlake.web.console.state import PAGE_ROWS, PageState, at_base, command_line

_FIRST = (
    "group_id", "why", UNUSED_TOPICS, "offsets", "since_timestamp", "idle_ms", "topic", "partition", "committed_offset",
    "rule", "clock", "clock_timestamp", "retention_ms",
)  # fmt: skip
_OMITTED = {"run_id", "outcome", "judged_offset", "group_type", "record_type", "value_version"}
_RULES = definition("tombstones").values("rule")


def add_routes(app: FastAPI, answers: PageAnswers, lake: str, bench: Workbench | None) -> None:
    """Add the routes; commands on the pages name `lake`, and without a bench nothing can be decided."""

    @app.get("/review")
    def review(visitor: Reader, show: Text = "tombstones", q: Text = "", rule: Text = "", page: int = 1) -> Response:
        if show not in SUBJECTS:
            raise HTTPException(404)
        state, subject, path = PageState(q=q, page=page), SUBJECTS[show], at_base("/review")
        every = listed(answers, subject, visitor, answers.pattern(state, visitor))
        by_rule = Counter(every["rule"].to_pylist()) if show == "tombstones" else Counter[str]()
        rows = every.filter(pc.equal(every["rule"], rule)) if rule and show == "tombstones" else every
        first = (page - 1) * PAGE_ROWS
        shown = rows.slice(first, PAGE_ROWS).to_pylist()
        keys = [key_of(subject, row) if visitor.administers(row["group_id"]) else "" for row in shown]
        if show == "kept":
            shown = [row | {"key": described(row["subject"], row["key"])} for row in shown]
        omitted = _OMITTED if show == "hanging" else {*_OMITTED, "log_partition"}
        columns = sorted({*rows.column_names} - omitted, key=lambda name: (_place(name), name))
        can_approve = any(keys) and "approve" in subject.decisions
        problem = approval_problem(answers, bench, show) if bench and can_approve else ""
        names = [name for name in columns if name == UNUSED_TOPICS or any(row[name] is not None for row in shown)]
        command = " && ".join(_command(words, state.pattern, rule, lake) for words in subject.commands)
        return page_response(
            "review.html", state, command, show=show, subjects=SUBJECTS, subject=subject, names=names, keys=keys,
            rows=[{name: text(name, row[name]) for name in names} for row in shown], total=rows.num_rows, rule=rule,
            numeric={name for name in names if _is_number(rows, name)}, by_rule=dict(sorted(by_rule.items())),
            counts=counts(answers, visitor) | {show: every.num_rows}, every=every.num_rows, rules=_RULES,
            heading=heading, more=rows.num_rows > page * PAGE_ROWS,
            can_decide=any(keys),
            problem=problem,
            address=lambda **changes: f"{path}?{urlencode({'show': show, 'q': q, 'rule': rule} | changes)}",
        )  # fmt: skip

    @app.post("/review")
    def decide(form: Change) -> Response:
        if bench is None:
            raise HTTPException(403)
        visitor, show, decision = form.visitor, form.text("show"), form.text("decision")
        subject = SUBJECTS.get(show)
        if subject is None or decision not in subject.decisions:
            raise BadRequest(f"Invalid decision {decision!r} about {show!r}: open the page again.")
        selected = selection(subject, form.fields.get("row", []), visitor)
        work = decide_on(bench, answers, show, decision, selected, visitor)
        return RedirectResponse(at_base(f"/change/{work.id}"), 303)


def _command(words: Sequence[str], pattern: str | None, rule: str, lake: str) -> str:
    """Return a command that lists the rows of the page; `reject` and `sql` list those of all groups."""
    options = {"group": pattern} if words[0] in ("tombstones", "audit") else {}
    if words[0] == "tombstones":
        options["rule"] = rule or None
    return command_line(*words, **options, lake=lake)


def _is_number(rows: pa.Table, name: str) -> bool:
    return pa.types.is_integer(rows[name].type) and not name.endswith("_timestamp")


def _place(name: str) -> int:
    """Return the place of a column: the offset first, then the evidence, then the others."""
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)
