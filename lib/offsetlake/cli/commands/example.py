"""`offsetlake example`: writes a log to try the commands on."""

from pathlib import Path
from typing import Annotated

import typer

from offsetlake.cli.commands.options import JOBS, app, epilog
from offsetlake.cli.output import write_line
from offsetlake.log.writer.example_log import LATER, write_example
from offsetlake.util.command_lines import command_line


@app.command(rich_help_panel=JOBS, epilog=epilog("offsetlake example /lakes/example/log"))
def example(log: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to create.")]) -> None:
    """Write a small example log, which offsetlake owns, so that every command can be tried on it."""
    write_example(log)
    options = ["--log", str(log), "--lake", str(log.parent / "lake"), "--now", LATER]
    write_line(f"Wrote an example log to {log}. Read it with:")
    write_line(f"  {command_line('run', *options)}")
