"""Changes of offsets: the form, the plan, its execution, and the undo."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from fastapi import Depends, FastAPI, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from offsetlake.errors import BadRequest
from offsetlake.web.console.access import Change, Reader, Visitor
from offsetlake.web.console.answers import PageAnswers
from offsetlake.web.console.changing.forms import KINDS, KINDS_OF_SHARE, OF_CLUSTER, STRATEGIES, Requested, read_form
from offsetlake.web.console.changing.workbench import Stage, Work, Workbench
from offsetlake.web.console.pages import page_response
from offsetlake.web.console.routes.parameters import EnteredTimes, Instant, Text
from offsetlake.web.console.state import PAGE_ROWS, PageState, at_base, change_command, lake_options

_OF_LAKE = {"reject"}
"""The commands that need no log."""


def _entries(
    at: Instant = "",
    before: Text = "",
    topic: Text = "",
    partitions: Text = "",
    strategy: Text = "",
    value: Text = "",
) -> dict[str, str]:
    return {
        "at": at, "before": before, "topic": topic, "partitions": partitions, "strategy": strategy, "value": value,
    }  # fmt: skip


_Entries = Annotated[dict[str, str], Depends(_entries)]
"""What the fields of a form contain at first."""


def add_routes(app: FastAPI, answers: PageAnswers, bench: Workbench | None, source: Sequence[str]) -> None:
    """Add the routes; without a bench all are refused. `source` are the options with the lake and the log."""

    @app.get("/change")
    def form(visitor: Reader, times: EnteredTimes, entries: _Entries, group: Text, kind: Text = "restore") -> Response:
        _check(visitor, group)
        if kind not in KINDS:
            raise HTTPException(404)
        kinds = _kinds(answers, group, kind)
        return _form(_opened(bench), replace(times, group=group), kind, kinds, entries, source)

    @app.post("/change")
    def plan(form: Change) -> Response:
        kind, group = form.text("kind"), form.fields.get("group", [""])[0]
        if kind in KINDS:
            _check(form.visitor, group)
        try:
            request = read_form(form, _opened(bench).log)
            work = _opened(bench).plan(request, form.visitor.principal, form.visitor.administers)
        except BadRequest as error:
            if kind not in KINDS:
                raise
            entries, kinds = {name: form.text(name) for name in _entries()}, _kinds(answers, group, kind)
            return _form(_opened(bench), PageState(group=group), kind, kinds, entries, source, str(error))
        return RedirectResponse(at_base(f"/change/{work.id}"), 303)

    @app.get("/change/{id}")
    def show(visitor: Reader, id: str, page: int = 1) -> Response:  # noqa: A002 - the name in the path
        work = _found(_opened(bench), id, visitor)
        command = _commands(work.request, source, is_executed=bool(work.run_id))
        state, first = PageState(page=page), (page - 1) * PAGE_ROWS
        rows = [] if work.rows is None else work.rows.slice(first, PAGE_ROWS).to_pylist()
        total = 0 if work.rows is None else work.rows.num_rows
        refused, unchanged = work.count("refused"), work.count("unchanged")
        return page_response(
            "change.html", state, command, work=work,
            rows=rows, total=total, more=total > page * PAGE_ROWS, refused=refused, changed=total - refused - unchanged,
            stages=Stage,
        )  # fmt: skip

    @app.post("/change/{id}/execute")
    def execute(form: Change, id: str) -> Response:  # noqa: A002
        work = _found(_opened(bench), id, form.visitor)
        if work.request.group:
            _check(form.visitor, work.request.group)
        requester = form.visitor.principal if form.visitor.is_signed_in else None
        _opened(bench).execute(work, requester, form.visitor.administers)
        return RedirectResponse(at_base(f"/change/{work.id}"), 303)


def _opened(bench: Workbench | None) -> Workbench:
    if bench is None:
        raise HTTPException(403, "This console only reads: see docs/console.md for the option --allow-changes.")
    return bench


def _kinds(answers: PageAnswers, group: str, kind: str) -> Mapping[str, str]:
    """Return the forms for a group with their titles; raise BadRequest if the group cannot be changed by `kind`."""
    kinds = KINDS_OF_SHARE if answers.is_share_group(group) else KINDS
    if kind not in kinds:
        raise BadRequest(
            f"Group {group} is a share group, which has no committed offsets. Its start offsets are reset by "
            "`offsetlake reset --share`, through its cluster."
        )
    return kinds


def _form(
    bench: Workbench,
    state: PageState,
    kind: str,
    kinds: Mapping[str, str],
    entries: Mapping[str, str],
    source: Sequence[str],
    message: str = "",
) -> Response:
    """Return the form of a kind of change, with entries in its fields, and why they were refused."""
    command = change_command((kind, "--", state.group), source)
    response = page_response(
        "change_form.html", state, command, kind=kind, kinds=kinds, strategies=_strategies(bench), entries=entries,
        message=message, log_problem=bench.log_problem(),
    )  # fmt: skip
    response.status_code = 400 if message else response.status_code
    return response


def _strategies(bench: Workbench) -> dict[str, str]:
    """Return the strategies of resets and their texts, without those that need a cluster if the log is in a folder."""
    return {
        name: text for name, text in STRATEGIES.items() if name not in OF_CLUSTER or bench.log.connection is not None
    }


def _check(visitor: Visitor, group: str) -> None:
    """Raise HTTPException if a visitor may not change a group, whether or not it exists."""
    if not visitor.may_change:
        raise HTTPException(403, "This console only reads: see docs/console.md for the option --allow-changes.")
    if not group:
        raise HTTPException(400, "Specify a group.")
    if not visitor.administers(group):
        raise HTTPException(403, f"A change of group {group} requires the permission admin.")


def _found(bench: Workbench, id_: str, visitor: Visitor) -> Work:
    work = bench.find(id_, visitor.principal)
    if work is None:
        raise HTTPException(404)
    return work


def _commands(request: Requested, source: Sequence[str], *, is_executed: bool) -> str:
    """Return the commands of a change, each with the lines that it reads in a here-document."""
    commands = [_command(words, source, is_executed=is_executed) for words in request.commands]
    if not request.inputs:
        return " && ".join(commands)
    both = zip(commands, request.inputs, strict=True)
    return "\n".join(f"{command} <<'END'\n{lines}\nEND" for command, lines in both)


def _command(words: Sequence[str], source: Sequence[str], *, is_executed: bool) -> str:
    """Return the command of a change with the options that it needs, and `--execute` if it was executed."""
    options = lake_options(source) if words[0] in _OF_LAKE else source
    return change_command(words, options, execute=is_executed and words[0] in KINDS)
