"""Cases of a test that run only with the tests that take long."""

from collections.abc import Iterable
from typing import Any

import pytest


def long_cases(values: Iterable[Any]) -> list[Any]:
    """Return parameters for `pytest.mark.parametrize` that are marked as long."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]
