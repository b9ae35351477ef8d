"""Types of the parameters in addresses."""

from typing import Annotated

from fastapi import Query
from pydantic import AfterValidator

_MAX_LENGTH = 1 << 16

Text = Annotated[str, Query(max_length=_MAX_LENGTH)]
Instant = Annotated[str, Query(max_length=_MAX_LENGTH), AfterValidator(str.strip)]
SecondInstant = Annotated[str, Query(alias="and", max_length=_MAX_LENGTH), AfterValidator(str.strip)]
"""The instant that a page compares the first one with: the parameter `and`."""
