"""Types of the parameters in addresses."""

from typing import Annotated

from fastapi import Query

Text = Annotated[str, Query(max_length=1 << 16)]
