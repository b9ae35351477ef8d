"""Locates the data files of the project: in the built package, or at the root of the repository in a checkout."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


def resource(*parts: str) -> Traversable:
    """Return a file or folder in `schemas/` or `conf/`, such as `resource("conf", "spark.conf")`."""
    packaged = files("offsetlake").joinpath(*parts)
    if packaged.is_file() or packaged.is_dir():
        return packaged
    return Path(__file__).parents[3].joinpath(*parts)
