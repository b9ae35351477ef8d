"""Checks the arguments of calls of the Python API."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def lists_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make calls with missing or unknown arguments raise a TypeError that lists the valid ones."""
    signature = inspect.signature(function)
    names = ", ".join(name for name in signature.parameters if name != "self")

    @wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{function.__qualname__}(): {error}; valid arguments: {names}") from None
        return function(*args, **kwargs)

    return checked
