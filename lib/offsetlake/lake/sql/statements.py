"""SQL statements, one file each in `schemas/queries/`, with named placeholders in braces."""

from functools import cache

from offsetlake.util.resources import resource


def statement(name: str, **parts: object) -> str:
    """Return the statement of a file, with its placeholders replaced by these parts."""
    return _template(name).format(**parts)


@cache
def _template(name: str) -> str:
    """Return the text of a file without its comments, which may name placeholders."""
    lines = resource("schemas", "queries", f"{name}.sql").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))
