"""The extras of the package: the modules that only they install, and the error if a command needs one."""

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import ParamSpec, TypeVar

from offsetlake.errors import NotInstalled

_P = ParamSpec("_P")
_R = TypeVar("_R")

EXTRAS = {
    "jobs": ("pyspark", "pandas"),
    "checks": ("great_expectations",),
    "serve": ("uvloop", "kio", "re2", "prometheus_client", "fastapi", "uvicorn"),
    "console": ("fastapi", "uvicorn"),
    "zookeeper": ("kazoo",),
}
"""The modules of each extra in `pyproject.toml`, apart from those that they require themselves."""


def require(extra: str) -> None:
    """Raise NotInstalled if a module of an extra is not installed; imports none of them."""
    for module in EXTRAS[extra]:
        if find_spec(module) is None:
            raise NotInstalled(
                f"This requires {module}, which is not installed: run `pip install 'offsetlake[{extra}]'`."
            )


def requires(extra: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator of a function that raises NotInstalled first if a module of an extra is not installed."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(function)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            require(extra)
            return function(*args, **kwargs)

        return checked

    return decorate
