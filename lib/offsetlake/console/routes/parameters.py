"""Types of the parameters in addresses."""

import asyncio
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Query, Request
from pydantic import AfterValidator

from offsetlake.console.pages import as_sentence
from offsetlake.console.state import NEEDS_FIRST, REJECTED, PageState, RejectedEntry
from offsetlake.errors import BadRequest
from offsetlake.queries.history.as_of import check_known
from offsetlake.queries.questions import first_instant
from offsetlake.util.times import to_iso, to_ms

_MAX_LENGTH = 1 << 16

Text = Annotated[str, Query(max_length=_MAX_LENGTH)]
Partition = Annotated[int, Query(ge=0, le=2**31 - 1)]
RunNumber = Annotated[int, Query(ge=0, le=2**63 - 1)]
Instant = Annotated[str, Query(max_length=_MAX_LENGTH), AfterValidator(str.strip)]
_Second = Annotated[Instant, Query(alias="and")]


def _times(at: Instant = "", second: _Second = "", since: Instant = "", until: Instant = "") -> PageState:
    return PageState(at=at, second=second, since=since, until=until)


async def _entries(
    request: Request, at: Instant = "", second: _Second = "", since: Instant = "", until: Instant = ""
) -> PageState:
    """Return the state with the instants that are valid, and not before history; `REJECTED` contains the others."""
    valid, rejected = dict[str, str](), dict[str, RejectedEntry]()
    for name, text in {"at": at, "second": second, "since": since, "until": until}.items():
        try:
            if text:
                to_ms(text)
            valid[name] = text
        except BadRequest as error:
            rejected[name] = RejectedEntry(text, str(error))
    for name, parameter in {"at": "at", "second": "and"}.items():
        if valid.get(name) and (entry := await asyncio.to_thread(_before_history, request, parameter, valid[name])):
            valid[name], rejected[name] = "", entry
    if valid.get("second") and not valid.get("at"):
        rejected["second"] = RejectedEntry(valid.pop("second"), "" if at else NEEDS_FIRST)
    REJECTED.set(rejected)
    return PageState(**valid)  # type: ignore[arg-type]


def _before_history(request: Request, parameter: str, text: str) -> RejectedEntry | None:
    """Return the entry of a valid instant if it is before history, otherwise None."""
    lake = request.app.state.answers.open()
    try:
        check_known(lake, to_ms(text))
    except BadRequest as error:
        first = first_instant(lake)
        earliest = "" if first is None else urlencode({**request.query_params, parameter: to_iso(first)})
        return RejectedEntry(text, as_sentence(str(error)), earliest)
    return None


Times = Annotated[PageState, Depends(_times)]
"""The instants and the period of an answer, as a state that the route completes."""

EnteredTimes = Annotated[PageState, Depends(_entries)]
"""The same of a page with a form for them, which also shows entries that are no instants."""
