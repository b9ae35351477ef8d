"""Types of the parameters in addresses."""

import asyncio
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Query, Request
from pydantic import AfterValidator

from offsetlake.errors import BadRequest
from offsetlake.queries.history.as_of import check_known
from offsetlake.queries.log_clock import first_instant, newest_instant
from offsetlake.util.times import is_relative, now_ms, to_iso, to_ms
from offsetlake.web.console.pages import as_sentence
from offsetlake.web.console.state import NEEDS_FIRST, REJECTED, PageState, RejectedEntry

_MAX_LENGTH = 1 << 16

Text = Annotated[str, Query(max_length=_MAX_LENGTH)]
Partition = Annotated[int, Query(ge=0, le=2**31 - 1)]
RunNumber = Annotated[int, Query(ge=0, le=2**63 - 1)]
Instant = Annotated[str, Query(max_length=_MAX_LENGTH), AfterValidator(str.strip)]
_Second = Annotated[Instant, Query(alias="and")]


class RelativeTime(Exception):
    """A page is requested at a relative time: `address` is that of the page at the time that it is now."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


def _check_absolute(request: Request, entered: Mapping[str, str]) -> None:
    """Raise RelativeTime if a parameter is a valid relative time: links of the page must mean the same later."""
    now, absolute = now_ms(), dict[str, str]()
    for parameter, text in entered.items():
        if is_relative(text):
            try:
                absolute[parameter] = to_iso(to_ms(text, now))
            except BadRequest:
                continue  # the page shows why
    if absolute:
        raise RelativeTime(f"?{urlencode({**request.query_params, **absolute})}")


def _times(
    request: Request, at: Instant = "", second: _Second = "", since: Instant = "", until: Instant = ""
) -> PageState:
    _check_absolute(request, {"at": at, "and": second, "since": since, "until": until})
    return PageState(at=at, second=second, since=since, until=until)


async def _entries(
    request: Request, at: Instant = "", second: _Second = "", since: Instant = "", until: Instant = ""
) -> PageState:
    """Return the state with the instants that are valid and in history; `REJECTED` contains the others."""
    _check_absolute(request, {"at": at, "and": second, "since": since, "until": until})
    valid, rejected = dict[str, str](), dict[str, RejectedEntry]()
    for name, text in {"at": at, "second": second, "since": since, "until": until}.items():
        try:
            if text:
                to_ms(text)
            valid[name] = text
        except BadRequest as error:
            rejected[name] = RejectedEntry(text, str(error))
    for name, parameter in {"at": "at", "second": "and"}.items():
        if valid.get(name) and (entry := await asyncio.to_thread(_outside_history, request, parameter, valid[name])):
            valid[name], rejected[name] = "", entry
    if valid.get("second") and not valid.get("at"):
        rejected["second"] = RejectedEntry(valid.pop("second"), "" if at else NEEDS_FIRST)
    REJECTED.set(rejected)
    return PageState(**valid)  # type: ignore[arg-type]


def _outside_history(request: Request, parameter: str, text: str) -> RejectedEntry | None:
    """Return the entry of a valid instant if it is before history or in the future, otherwise None."""
    lake, instant = request.app.state.answers.open(), to_ms(text)
    if instant > now_ms():
        newest = newest_instant(lake)
        known = "" if newest is None else f": the newest record is of {to_iso(newest)}"
        return RejectedEntry(text, f"{to_iso(instant)} is in the future{known}.")
    try:
        check_known(lake, instant)
    except BadRequest as error:
        first = first_instant(lake)
        earliest = "" if first is None else urlencode({**request.query_params, parameter: to_iso(first)})
        return RejectedEntry(text, as_sentence(str(error)), earliest)
    return None


Times = Annotated[PageState, Depends(_times)]
"""The instants and the period of an answer, as a state that the route completes."""

EnteredTimes = Annotated[PageState, Depends(_entries)]
"""The same of a page with a form for them, which also shows entries that are no instants."""
