"""Writes the pages that are generated from the program: `cli.md` from the commands, `tables.md` from `schemas/tables`.

`make docs`, or python docs/generate.py FOLDER
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from offsetlake.cli.app import app
from offsetlake.lake.definitions import TABLES, ColumnDefinition, TableDefinition, definition

CLI_START = """\
# CLI reference

This page is generated from the help of the commands by `make docs`; the option `--help` of a command prints the same.

* Settings that [conf/offsetlake.toml](../conf/offsetlake.toml) lists can also be set in a configuration file
  (`--config FILE`) or in the environment (`OFFSETLAKE_LAKE`). Options override the environment, which overrides files.
* Times are in UTC unless an offset is given: ISO 8601 (`2026-11-27T14:05`, `20261127T1405+01:00`, `2026-W48-5`), the
  last time that it was `14:05`, `now`, `2h ago` or `-2h`, or milliseconds since the epoch with 13 digits. Numbers that
  can be seconds, microseconds or a date and a time are refused. A time that does not show by itself which instant it
  is, and that of each plan, is written to standard error in UTC, and the command that a plan prints contains it.
* Durations are `90s`, `15m` (minutes), `36h`, `7d` or `2w`.
* A pattern is that of a shell: `*`, `?`, `[abc]`. A group whose name is exactly the text is meant before the pattern:
  `svc[1]` is the group `svc[1]` if there is one, otherwise `svc1`, and `svc[[]1]` is always `svc[1]`. Patterns in
  settings and ACLs, and those of clusters, are always patterns.
* [output.md](output.md) describes the output formats and the exit codes.
"""
TABLES_START = """\
# Tables

This page is generated from `schemas/tables/` by `make docs`. Each table is a plain Delta table in a folder of the lake;
the views over the tables are described in [audits.md](audits.md).

Types are those of Spark SQL: `integer` has 32 bits, `long` has 64. Timestamps are milliseconds since the epoch.
Constraints are Delta CHECK constraints, which every Delta writer enforces.
"""


def cli_page() -> str:
    """Return the page with the options of every command."""
    commands = list(_commands(get_command(app), ""))
    panels = dict.fromkeys(panel for _, panel, _ in commands)
    lines = [CLI_START, "| Commands | |", "|---|---|"]
    for panel in panels:
        names = ", ".join(f"[`{name}`](#{_anchor(name)})" for name, of, _ in commands if of == panel)
        lines.append(f"| {panel} | {names} |")
    for name, _, command in commands:
        lines += ["", f"## {name}", *_command(name, command)]
    return "\n".join(lines) + "\n"


def tables_page() -> str:
    """Return the page with the columns and the constraints of every table."""
    definitions = [definition(name) for name in TABLES]
    lines = [TABLES_START, "| Table | Description |", "|---|---|"]
    lines += [f"| [`{table.name}`](#{table.name}) | {_cell(table.comment)} |" for table in definitions]
    for table in definitions:
        lines += ["", f"## {table.name}", *_table(table)]
    return "\n".join(lines) + "\n"


PAGES = {"cli.md": cli_page, "tables.md": tables_page}


def _commands(command: Any, name: str, panel: str | None = None) -> Iterator[tuple[str, str | None, Any]]:
    panel = getattr(command, "rich_help_panel", None) or panel
    if hasattr(command, "commands"):
        for each, below in command.commands.items():
            yield from _commands(below, f"{name} {each}".strip(), panel)
    else:
        yield name, panel, command


def _command(name: str, command: Any) -> Iterator[str]:
    yield from (re.sub(r"\s+", " ", paragraph) + "\n" for paragraph in _plain(command.help).split("\n\n"))
    arguments, options = ([each for each in command.params if each.param_type_name == kind] for kind in _KINDS)
    usage = " ".join(["offsetlake", name, *map(_argument, arguments), "[OPTIONS]"])
    yield from ("```text", usage, "```", "| Option | Value | Description |", "|---|---|---|")
    yield from (f"| {_code(_argument(each))} | | {_description(each)} |" for each in arguments)
    yield from (f"| {_code(each.opts[0])} | {_value(each)} | {_description(each)} |" for each in options)
    examples = [line.strip() for line in (command.epilog or "").splitlines() if line.startswith("  ")]
    yield from ("", "```text", *examples, "```")


_KINDS = ("argument", "option")


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name.upper()).strip("[]")
    return name if parameter.required else f"[{name}]"


def _value(option: Any) -> str:
    return "" if option.is_flag else _code(option.metavar or option.display_type(None).strip("<>"))


def _description(parameter: Any) -> str:
    text = re.sub(r"\[dim\]default: (.*)\[/\]", r"Default: \1.", parameter.help or "")
    return _cell(_plain(text).replace("\n", " ")) + (" Required." if parameter.required else "")


def _table(table: TableDefinition) -> Iterator[str]:
    yield f"{_cell(table.comment)}."
    yield from ("", "| Column | Type | Null | Description |", "|---|---|---|---|")
    for column in table.columns:
        null = "yes" if column["nullable"] else ""
        yield f"| `{column['name']}` | `{_type(column['type'])}` | {null} | {_cell(_meaning(column))} |"
    if table.checks:
        yield from ("", "| Constraint | Condition |", "|---|---|")
        yield from (f"| `{check['name']}` | {_code(check['sql'])} |" for check in table.checks)


def _meaning(column: ColumnDefinition) -> str:
    values = "; ".join(f"`{value}`: {words}" for value, words in column.get("values", {}).items())
    return f"{column['comment']}. {values}" if values else column["comment"]


def _type(delta: Any) -> str:
    """Return a type as Spark SQL writes it."""
    match delta:
        case {"type": "array"}:
            return f"array<{_type(delta['elementType'])}>"
        case {"type": "map"}:
            return f"map<{_type(delta['keyType'])}, {_type(delta['valueType'])}>"
        case {"type": "struct"}:
            fields = ", ".join(f"{field['name']}: {_type(field['type'])}" for field in delta["fields"])
            return f"struct<{fields}>"
    return str(delta)


def _plain(marked: str) -> str:
    r"""Return a text without Rich's markup: `[dim]x[/]` is x, `\[` is a bracket."""
    return re.sub(r"(?<!\\)\[/?[a-z]*\]", "", marked).replace("\\[", "[").strip()


def _cell(text: str) -> str:
    """Return a text as a cell of a table, in which Markdown changes nothing outside of backquotes."""
    parts = text.replace("|", "\\|").split("`")
    return "`".join(part if number % 2 else re.sub(r"([*<])", r"\\\1", part) for number, part in enumerate(parts))


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


if __name__ == "__main__":
    for page, text in PAGES.items():
        (Path(sys.argv[1]) / page).write_text(text(), encoding="utf-8")
