"""The commands by which a person changes offsets: always a plan first; `--execute` acts, and reads back."""

from typing import Annotated

import typer

from offsetlake.cli.commands.options import (
    BY_HAND,
    BootstrapOption,
    ConfigOption,
    FormatOption,
    KafkaConfigOption,
    LakeOption,
    LogOption,
    TopicOption,
    app,
    examples,
)
from offsetlake.cli.commands.plans import OF_ALTERATIONS, OF_TOMBSTONES, Plan, hand
from offsetlake.errors import BadRequest
from offsetlake.pipeline.changes import reset as offset_resets
from offsetlake.pipeline.changes.cleanup import plan_cleanup
from offsetlake.util.times import now_ms, to_ms

ExecuteOption = Annotated[bool, typer.Option("--execute", help="Do it, and read back what came of it.")]
GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", help="A group, or a pattern: * ? \\[abc] as in a shell.")
]


@app.command(
    rich_help_panel=BY_HAND,
    epilog=examples(
        "offsetlake cleanup old-billing --lake example/lake",
        "offsetlake cleanup billing --topic orders-v1 --lake example/lake --execute",
        "offsetlake cleanup 'old-*' --lake example/lake --execute",
    ),
)
def cleanup(
    context: typer.Context,
    group: GroupArgument,
    topic: TopicOption = None,
    execute: ExecuteOption = False,
    format_: FormatOption = None,
    lake: LakeOption = None,
    log: LogOption = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Delete groups with all their offsets, or their offsets of one topic; a group that has members is left alone."""
    with hand(lake, log, bootstrap, kafka_config, config_file, format_, context.obj) as at:
        at.act(
            "cleanup",
            "tombstones",
            lambda lake: plan_cleanup(lake, group, topic, now_ms(), live=at.live),
            OF_TOMBSTONES,
            execute=execute,
        )


@app.command(
    rich_help_panel=BY_HAND,
    epilog=examples(
        "offsetlake reset billing --all-topics --shift-by -100 --lake example/lake --execute",
        "offsetlake restore --run 7 --lake example/lake --execute",
        "offsetlake restore billing --as-of 2026-01-31T14:00:05 --lake example/lake",
    ),
)
def restore(
    context: typer.Context,
    group: Annotated[
        str | None, typer.Argument(metavar="[GROUP]", help="A group or a pattern; not with --run.")
    ] = None,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="TIME", help="To what it had then: ms or ISO 8601.")
    ] = None,
    run: Annotated[
        int | None, typer.Option("--run", metavar="N", help="To what was before run N of emit: undo what it did.")
    ] = None,
    topic: TopicOption = None,
    execute: ExecuteOption = False,
    format_: FormatOption = None,
    lake: LakeOption = None,
    log: LogOption = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Set offsets back to what they were at an instant, or before a run that reset, cleaned up or expired them.

    Offsets a group did not have at the instant stay as they are.
    """
    if group is not None and as_of is not None and run is None:
        instant, name = to_ms(as_of), group
        make: Plan = lambda lake: offset_resets.as_of(lake, name, instant, topic, now_ms())  # noqa: E731
    elif run is not None and group is None and as_of is None and topic is None:
        number = run
        make = lambda lake: offset_resets.undo(lake, number, now_ms())  # noqa: E731
    else:
        raise BadRequest("say what to go back to: GROUP --as-of TIME, or --run N alone")
    with hand(lake, log, bootstrap, kafka_config, config_file, format_, context.obj) as at:
        at.act("restore", "alterations", make, OF_ALTERATIONS, execute=execute)


@app.command(
    rich_help_panel=BY_HAND,
    epilog=examples(
        "offsetlake undelete nightly-report --lake example/lake",
        "offsetlake undelete 'nightly-*' --topic orders --lake example/lake --execute",
    ),
)
def undelete(
    context: typer.Context,
    group: GroupArgument,
    topic: TopicOption = None,
    execute: ExecuteOption = False,
    format_: FormatOption = None,
    lake: LakeOption = None,
    log: LogOption = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Bring back the offsets a group had that expired or were deleted, as history has them."""
    with hand(lake, log, bootstrap, kafka_config, config_file, format_, context.obj) as at:
        at.act(
            "undelete",
            "alterations",
            lambda lake: offset_resets.undelete(lake, group, topic, now_ms()),
            OF_ALTERATIONS,
            execute=execute,
        )
