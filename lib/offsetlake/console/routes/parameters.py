"""Types of the parameters in addresses."""

from typing import Annotated

from fastapi import Depends, Query
from pydantic import AfterValidator

from offsetlake.console.state import NEEDS_FIRST, REJECTED, PageState, RejectedEntry
from offsetlake.errors import BadRequest
from offsetlake.util.times import to_ms

_MAX_LENGTH = 1 << 16

Text = Annotated[str, Query(max_length=_MAX_LENGTH)]
Instant = Annotated[str, Query(max_length=_MAX_LENGTH), AfterValidator(str.strip)]
_Second = Annotated[Instant, Query(alias="and")]


def _times(at: Instant = "", second: _Second = "", since: Instant = "", until: Instant = "") -> PageState:
    return PageState(at=at, second=second, since=since, until=until)


async def _entries(at: Instant = "", second: _Second = "", since: Instant = "", until: Instant = "") -> PageState:
    """Return the state with the instants that are valid; `REJECTED` contains the others."""
    valid, rejected = dict[str, str](), dict[str, RejectedEntry]()
    for name, text in {"at": at, "second": second, "since": since, "until": until}.items():
        try:
            if text:
                to_ms(text)
            valid[name] = text
        except BadRequest as error:
            rejected[name] = RejectedEntry(text, str(error))
    if valid.get("second") and not valid.get("at"):
        rejected["second"] = RejectedEntry(valid.pop("second"), "" if at else NEEDS_FIRST)
    REJECTED.set(rejected)
    return PageState(**valid)  # type: ignore[arg-type]


Times = Annotated[PageState, Depends(_times)]
"""The instants and the period of an answer, as a state that the route completes."""

EnteredTimes = Annotated[PageState, Depends(_entries)]
"""The same of a page with a form for them, which also shows entries that are no instants."""
