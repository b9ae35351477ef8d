"""The type of the fixture `run`: a command's arguments in; exit code, standard output and standard error out."""

from collections.abc import Callable

Run = Callable[..., tuple[int, str, str]]
