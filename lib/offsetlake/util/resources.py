"""Finds the project's data: inside the package once it is built, at the repository's root in a checkout."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


def resource(*parts: str) -> Traversable:
    """Find a file or folder below `schemas/` or `conf/`, such as `resource("conf", "spark.conf")`."""
    packaged = files("offsetlake").joinpath(*parts)
    if packaged.is_file() or packaged.is_dir():
        return packaged
    return Path(__file__).parents[3].joinpath(*parts)
