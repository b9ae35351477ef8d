"""Types of the parameters in addresses."""

from typing import Annotated

from fastapi import Depends, Query
from pydantic import AfterValidator

from offsetlake.console.state import PageState

_MAX_LENGTH = 1 << 16

Text = Annotated[str, Query(max_length=_MAX_LENGTH)]
Instant = Annotated[str, Query(max_length=_MAX_LENGTH), AfterValidator(str.strip)]


def _times(
    at: Instant = "", second: Annotated[Instant, Query(alias="and")] = "", since: Instant = "", until: Instant = ""
) -> PageState:
    return PageState(at=at, second=second, since=since, until=until)


Times = Annotated[PageState, Depends(_times)]
"""The instants and the period of a page, as a state that the page completes."""
