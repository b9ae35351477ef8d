"""The version of the program."""

from importlib.metadata import PackageNotFoundError, version


def program_version() -> str:
    """Return the version of the installed package."""
    try:
        return version("offsetlake")
    except PackageNotFoundError:
        return "(source checkout)"
