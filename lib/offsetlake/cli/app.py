"""The Typer application with all commands of `offsetlake.cli.commands`."""

from typing import Annotated, Any

import typer

# Each module adds its commands to `app`; the help lists them in this order.
# isort: off
from offsetlake.cli.commands import jobs  # noqa: F401
from offsetlake.cli.commands.changing import decisions  # noqa: F401
from offsetlake.cli.commands import check  # noqa: F401
from offsetlake.cli.commands import example  # noqa: F401
from offsetlake.cli.commands import repair  # noqa: F401
from offsetlake.cli.commands import rebuild  # noqa: F401
from offsetlake.cli.commands import forget  # noqa: F401
from offsetlake.cli.commands.serving import serve  # noqa: F401
from offsetlake.cli.commands.serving import handover  # noqa: F401
from offsetlake.cli.commands.serving import credentials  # noqa: F401
from offsetlake.cli.commands.querying import questions  # noqa: F401
from offsetlake.cli.commands.querying import runs  # noqa: F401
from offsetlake.cli.commands.querying import lag  # noqa: F401
from offsetlake.cli.commands.querying import share  # noqa: F401
from offsetlake.cli.commands.querying import audits  # noqa: F401
from offsetlake.cli.commands.querying import report  # noqa: F401
from offsetlake.cli.commands.serving import console  # noqa: F401
from offsetlake.cli.commands.changing import reset  # noqa: F401
from offsetlake.cli.commands.changing import changes  # noqa: F401
from offsetlake.cli.commands.changing import imports  # noqa: F401
from offsetlake.cli.commands.changing import exports  # noqa: F401
from offsetlake.cli.commands.changing import translate  # noqa: F401
from offsetlake.cli.commands.querying import snapshot  # noqa: F401

# isort: on
from offsetlake.cli.commands.options import ClusterOption, FleetOption, app
from offsetlake.errors import BadRequest
from offsetlake.util.program import program_version

__all__ = ["app", "command"]


@app.callback(invoke_without_command=True)
def offsetlake(
    context: typer.Context,
    print_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    fleet: FleetOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Consumer offsets as a lakehouse: loads Kafka's `__consumer_offsets` log into Delta tables, and queries them."""
    if print_version:
        typer.echo(f"offsetlake {program_version()}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
    elif fleet is not None and not _uses_lake(context, context.invoked_subcommand):
        raise BadRequest(f"offsetlake {context.invoked_subcommand} uses no lake: leave --fleet out.")


def _uses_lake(context: typer.Context, name: str) -> bool:
    commands: dict[str, typer.core.TyperCommand] = getattr(context.command, "commands", {})
    return name in commands and any(parameter.name == "lake" for parameter in commands[name].params)


def _without_types_of_flags(command: Any) -> Any:
    """Return a command whose help shows no type of flags, which take no value."""
    for parameter in command.get_params(typer.Context(command)):
        if isinstance(parameter, typer.core.TyperOption) and parameter.is_flag:
            parameter.metavar = ""
    for subcommand in getattr(command, "commands", {}).values():
        _without_types_of_flags(subcommand)
    return command


command: typer.core.TyperGroup = _without_types_of_flags(typer.main.get_command(app))
"""The application as a command that can be called any number of times: `app` builds all commands in each call."""
