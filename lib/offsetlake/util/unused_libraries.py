"""Libraries that others import if they are installed, and that most processes do not use."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType


class _Absent:
    """A finder that lets imports of some modules fail as if they were not installed.

    It does not derive from `importlib.abc.MetaPathFinder`: that module also imports `tempfile` and `lzma`, in 10 ms.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Raise ModuleNotFoundError for these modules; other finders search for all others."""
        if fullname in self._names:
            raise ModuleNotFoundError(f"This process does not import {fullname}.", name=fullname)


@contextmanager
def absent(*names: str) -> Iterator[None]:
    """Let imports of modules fail inside the block as if they were not installed."""
    finder = _Absent(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def load_arrow() -> None:
    """Load Arrow without pandas, which it imports if it is installed: that takes 42 MB and a quarter of a second.

    Arrow searches for pandas once, and again when it has to convert to its types.
    """
    with absent("pandas"):
        import pyarrow as pa  # noqa: PLC0415

        pa.array([])  # searches for pandas
