"""The views over the tables: one file each in `schemas/views/`, with a SELECT that both DataFusion and Spark SQL run.

A file starts with comments: the question that the view answers; notes; and the columns, each in a line with three
blanks, the name and the meaning (lines with more blanks continue the meaning). Then follow `worst first:`, an ORDER BY;
`since:`, the column with the time; and `least important:`, optional, the columns that a narrow terminal omits, in this
order. `outcomes in this order:`, optional, says that each row is of the row of `commit_outcomes` with the same log
partition and log offset, and which ORDER BY of these rows is the same as `worst first:`. A view may be built on others,
which it names like tables. The line ` by log partition` says that the view has a column group_id and that its rows of a
group follow from the history of the group in one log partition, with the markers and the commits in parts there. Such a
view can be computed for some log partitions, or some groups of one, at a time.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from typing import NamedTuple

from offsetlake.lake.definitions import TABLES
from offsetlake.util.resources import resource

_COLUMN = re.compile(r"   (\w+) +(.+)")
_GOES_ON = re.compile(r"    +(.+)")
_LABELS = (" worst first: ", " since: ", " least important: ", " outcomes in this order: ")
_PARTED = " by log partition"
_WINDOW = re.compile(r"\bOVER\b")
_NAMED = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")


class Described(NamedTuple):
    """What the catalog of an engine has of a table or a view besides its rows: its name, a comment, and its columns.

    `answers` is the comment; `columns` has the meaning of each column by its name, in their order.
    """

    name: str
    answers: str
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class View:
    """A view as its file defines it.

    | field   | description |
    |---------|-------------|
    | answers | the question it answers |
    | columns | names in their order, with their meanings |
    | order   | an ORDER BY that puts the rows that need attention first |
    | since   | the column with the time, ms since the epoch |
    | least_important | columns that a narrow terminal omits, in this order |
    | outcomes_order | the ORDER BY of the rows of `commit_outcomes` that its rows are of; empty if they are not |
    | by_log_partition | whether it can be queried some log partitions at a time |
    | select  | its SELECT |
    | uses    | names of the tables and views it reads |
    """

    name: str
    answers: str
    columns: dict[str, str]
    order: str
    since: str
    least_important: tuple[str, ...]
    outcomes_order: str
    by_log_partition: bool
    select: str
    uses: frozenset[str]

    @property
    def has_windows(self) -> bool:
        """Whether it sorts rows to compare each with others."""
        return bool(_WINDOW.search(self.select))

    def select_from(self, schema: str) -> str:
        """Return its SELECT over the tables and views of a schema, such as `catalog.schema`."""
        used = re.compile(rf"(\b(?:FROM|JOIN)\s+)({'|'.join(sorted(self.uses))})\b")
        return used.sub(lambda match: f"{match[1]}{schema}.{match[2]}", self.select)


@cache
def views() -> dict[str, View]:
    """Return all views, each after those it is built on."""
    files = [file for file in resource("schemas", "views").iterdir() if file.name.endswith(".sql")]
    texts = {file.name.removesuffix(".sql"): file.read_text(encoding="utf-8") for file in files}
    known = {name: _parsed(name, text, {*texts, *TABLES}) for name, text in sorted(texts.items())}
    order = TopologicalSorter({name: sorted(view.uses & known.keys()) for name, view in known.items()})
    return {name: known[name] for name in order.static_order()}


def needed(names: Iterable[str]) -> tuple[set[str], list[View]]:
    """Return the tables and views that the named ones depend on, including these; views in the order of creation."""
    wanted = {*names}
    for view in reversed(views().values()):
        if view.name in wanted:
            wanted |= view.uses
    return {name for name in TABLES if name in wanted}, [view for view in views().values() if view.name in wanted]


def named_in(statement: str) -> set[str]:
    """Return the views that an SQL statement may name."""
    return views().keys() & set(re.findall(r"\w+", statement))


def _parsed(name: str, text: str, known: set[str]) -> View:
    lines = text.splitlines()
    length = next(index for index, line in enumerate(lines) if not line.startswith("--"))
    comments, select = [line[2:] for line in lines[:length]], "\n".join(lines[length:])
    columns: dict[str, str] = {}
    labels: dict[str, str] = {}
    for line in comments:
        if column := _COLUMN.fullmatch(line):
            columns[column[1]] = column[2]
        elif more := _GOES_ON.fullmatch(line):
            columns[[*columns][-1]] += f" {more[1]}"
        elif line.startswith(_LABELS):
            label, text_of_label = line.strip().split(": ", 1)
            labels[label] = text_of_label
    answers = " ".join(line.strip() for line in comments[: comments.index("")])
    uses = frozenset(_NAMED.findall(select)) & known
    least = tuple(labels["least important"].split(", ")) if "least important" in labels else ()
    return View(
        name,
        answers,
        columns,
        labels["worst first"],
        labels["since"],
        least,
        labels.get("outcomes in this order", ""),
        _PARTED in comments,
        select,
        uses,
    )
