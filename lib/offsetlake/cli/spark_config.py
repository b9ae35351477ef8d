"""The table `[spark]` of the settings: where Spark runs, and its properties."""

import re
from collections.abc import Mapping

from offsetlake.errors import BadRequest

MASTER, REMOTE = "spark.master", "spark.remote"

_MASTER = re.compile(r"local(\[(\*|\d+)(,\d+)?\])?|spark://\S+:\d+|yarn|k8s://\S+")
_REMOTE = re.compile(r"sc://[^/\s]+(/\S*)?")
_FORMS = {
    "master": (_MASTER, "local[4], spark://HOST:PORT, yarn or k8s://HOST:PORT"),
    "remote": (_REMOTE, "sc://HOST:PORT"),
}


def spark_properties(table: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the Spark properties of a table with `master` or `remote`, and properties by their full names.

    Raises BadRequest if a name or an address is invalid, or if the table has a master and a remote.
    """
    if "master" in table and "remote" in table:
        raise BadRequest(f"{where}: master and remote are mutually exclusive: a Connect server has its own master.")
    return {_full_name(name, where): _checked(name, value, where) for name, value in table.items()}


def _full_name(name: str, where: str) -> str:
    if name in _FORMS:
        return f"spark.{name}"
    if name in (MASTER, REMOTE):
        raise BadRequest(f"{where}: {name} must be written as {name.removeprefix('spark.')}.")
    if not re.fullmatch(r"spark\.[\w.\-/]+", name):
        raise BadRequest(
            f"{where}: unknown {name}. Known: master, remote, and the properties of Spark, "
            'whose names begin with spark, such as "spark.executor.memory".'
        )
    return name


def _checked(name: str, value: str, where: str) -> str:
    if name in _FORMS:
        form, expected = _FORMS[name]
        if not form.fullmatch(value):  # the message must not contain the address, which may contain a token
            raise BadRequest(f"{where}: {name} is invalid: expected {expected}.")
    elif not value.strip():
        raise BadRequest(f"{where}: {name} is empty.")
    return value
