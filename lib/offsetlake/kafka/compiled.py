"""Functions that Numba compiles: the loops over the bytes of a log."""

from collections.abc import Callable
from functools import cached_property
from typing import Any


class Compiled:
    """A function that is compiled, or read from Numba's cache, when it is called for the first time.

    Numba takes 50 MB of memory and a fifth of a second to import, which processes that read no log do not spend.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function, self._options = function, options
        self.__doc__ = function.__doc__

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        return self._dispatcher(*arguments)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of Numba's own object, by which Numba knows functions that others call."""
        return getattr(self._dispatcher, name)

    @cached_property
    def _dispatcher(self) -> Any:
        from numba import njit  # noqa: PLC0415 - as the docstring of the class explains

        return njit(**self._options)(self._function)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Compiled]:
    """Return a decorator for a function that is compiled with the options of `numba.njit`."""
    return lambda function: Compiled(function, options)
