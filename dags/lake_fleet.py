"""The lakes that have DAGs: those in the file that `OFFSETLAKE_FLEET` names, or the one of the settings of the workers.

`python lake_fleet.py` prints the pools of all lakes, for `airflow pools import`.
"""

import json
import os
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

WRITER = "offsetlake_writer"
"""The pool with one slot for tasks that write to a lake. The lake also has a lock of its own."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake that has DAGs of its own.

    | Field     | Description |
    |-----------|-------------|
    | name      | The name of the lake in the file of lakes; empty if there is no such file. |
    | bootstrap | The address of its live cluster, if the file has one. |
    """

    name: str = ""
    bootstrap: str = ""

    def own(self, name: str) -> str:
        """Return the name of something of this lake: a DAG, a pool, a Variable."""
        return f"{name}.{self.name}" if self.name else name


def read_lakes(file: str | None) -> list[Lake]:
    """Return the lakes in a file of lakes, or one lake without a name if there is no file.

    Raises ValueError, which Airflow shows as an import error, for a file without lakes or a name that no DAG can have.
    """
    if not file:
        return [Lake()]
    tables = tomllib.loads(Path(file).read_text(encoding="utf-8")).get("lakes")
    if not isinstance(tables, dict) or not tables:
        raise ValueError(f"{file} lists no lake: expected a table [lakes.NAME] for each lake.")
    for name, table in tables.items():
        if not _NAME.fullmatch(name) or not isinstance(table, dict):
            raise ValueError(
                f"{file}, lake {name!r}: expected a table, whose name has at most 100 letters, digits, dots, hyphens "
                "and underscores, and begins with a letter or a digit."
            )
    return [Lake(name, str(table.get("bootstrap", ""))) for name, table in tables.items()]


LAKES = read_lakes(os.environ.get("OFFSETLAKE_FLEET"))

if __name__ == "__main__":
    pool = {"slots": 1, "description": "writes to the lake", "include_deferred": False}
    json.dump({lake.own(WRITER): pool for lake in LAKES}, sys.stdout, indent=1)
