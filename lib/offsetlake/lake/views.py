"""The views over the tables: one file each in `schemas/views/`, one SELECT that DataFusion and Spark SQL both run.

A file begins with comments: what the view answers; notes; its columns, each a line of three blanks, name and meaning
(farther in: the meaning goes on); `worst first:`, an ORDER BY; `since:`, the column that says when; `least important:`,
optional, the columns that a narrow terminal does not show, the first to be dropped first. A view may build on others:
it names them as it names tables. ` by log partition`, a line of its own: the view has a column group_id, and its rows
of a group follow from the group's history in one log partition, with the markers and the commits in parts there, so it
can be computed for some log partitions, or some groups of one, at a time.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter

from offsetlake.lake.definitions import TABLES
from offsetlake.util.resources import resource

_COLUMN = re.compile(r"   (\w+) +(.+)")
_GOES_ON = re.compile(r"    +(.+)")
_PARTED = " by log partition"
_NAMED = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")


@dataclass(frozen=True, slots=True)
class View:
    """One view as its file says.

    | field   | is |
    |---------|----|
    | answers | the question it answers, in words |
    | columns | names in their order, with what each means |
    | order   | an ORDER BY that puts first what is worth looking at |
    | since   | the column, ms since the epoch, that says when |
    | least_important | columns that a narrow terminal does not show, the first to be dropped first |
    | by_log_partition | whether it can be asked for the history of some log partitions at a time |
    | select  | its SELECT |
    | uses    | names of the tables and views it reads |
    """

    name: str
    answers: str
    columns: dict[str, str]
    order: str
    since: str
    least_important: tuple[str, ...]
    by_log_partition: bool
    select: str
    uses: frozenset[str]


@cache
def views() -> dict[str, View]:
    """Read all views; each behind those it builds on."""
    files = [file for file in resource("schemas", "views").iterdir() if file.name.endswith(".sql")]
    texts = {file.name.removesuffix(".sql"): file.read_text(encoding="utf-8") for file in files}
    known = {name: _parsed(name, text, {*texts, *TABLES}) for name, text in sorted(texts.items())}
    order = TopologicalSorter({name: sorted(view.uses & known.keys()) for name, view in known.items()})
    return {name: known[name] for name in order.static_order()}


def needed(names: Iterable[str]) -> tuple[set[str], list[View]]:
    """Give the tables and the views that some tables and views take, these included; views in an order to make them."""
    wanted = {*names}
    for view in reversed(views().values()):
        if view.name in wanted:
            wanted |= view.uses
    return {name for name in TABLES if name in wanted}, [view for view in views().values() if view.name in wanted]


def named_in(statement: str) -> set[str]:
    """Give the views that an SQL statement may name."""
    return views().keys() & set(re.findall(r"\w+", statement))


def _parsed(name: str, text: str, known: set[str]) -> View:
    lines = text.splitlines()
    length = next(at for at, line in enumerate(lines) if not line.startswith("--"))
    comments, select = [line[2:] for line in lines[:length]], "\n".join(lines[length:])
    columns: dict[str, str] = {}
    told: dict[str, str] = {}
    for line in comments:
        if column := _COLUMN.fullmatch(line):
            columns[column[1]] = column[2]
        elif more := _GOES_ON.fullmatch(line):
            columns[[*columns][-1]] += f" {more[1]}"
        elif line.startswith((" worst first: ", " since: ", " least important: ")):
            label, said = line.strip().split(": ", 1)
            told[label] = said
    answers = " ".join(line.strip() for line in comments[: comments.index("")])
    uses = frozenset(_NAMED.findall(select)) & known
    least = tuple(told["least important"].split(", ")) if "least important" in told else ()
    return View(name, answers, columns, told["worst first"], told["since"], least, _PARTED in comments, select, uses)
