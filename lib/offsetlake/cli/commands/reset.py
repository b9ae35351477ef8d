"""`offsetlake reset`: the strategies of `kafka-consumer-groups --reset-offsets`, by the same names, and two more."""

import re
from collections.abc import Mapping
from typing import Annotated

import typer

from offsetlake.cli.commands.by_hand import ExecuteOption
from offsetlake.cli.commands.options import (
    BY_HAND,
    BootstrapOption,
    ConfigOption,
    FormatOption,
    KafkaConfigOption,
    LakeOption,
    LogOption,
    app,
    examples,
)
from offsetlake.cli.commands.plans import OF_ALTERATIONS, hand
from offsetlake.errors import BadRequest
from offsetlake.pipeline.changes import reset as offset_resets
from offsetlake.pipeline.changes.reset import Reset
from offsetlake.rules import strategies as of
from offsetlake.util.times import duration_ms, now_ms, to_ms

_TOPIC = re.compile(r"(?P<topic>[^:]+)(:(?P<partitions>[0-9]{1,9}(,[0-9]{1,9})*))?")


@app.command(
    rich_help_panel=BY_HAND,
    epilog=examples(
        "offsetlake reset billing --all-topics --to-current --lake example/lake --export > offsets.csv",
        "offsetlake reset billing --topic orders:0 --to-offset 1000 --only-if 1120 --lake example/lake --execute",
        "offsetlake reset billing --from-file offsets.csv --lake example/lake --execute",
        "offsetlake reset checkout --all-topics --to-datetime 2026-01-31T14:05 --lake /lakes/prod "
        "--bootstrap broker-1:9092",
    ),
)
def reset(
    context: typer.Context,
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="The group; a file may name its own.")] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC[:P,...]", help="Partitions to reset; more than once.")
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All the group has offsets of.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To where the logs begin.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To where the logs end.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="To where the group is: to export it.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", metavar="N", min=0, help="To this offset.")] = None,
    shift_by: Annotated[int | None, typer.Option("--shift-by", metavar="N", help="On by N, or back by -N.")] = None,
    to_datetime: Annotated[
        str | None, typer.Option("--to-datetime", metavar="TIME", help="To the first record from then on.")
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="DURATION", help="To the first record of the last 36h, 1w, PT1H."),
    ] = None,
    from_file: Annotated[
        str | None, typer.Option("--from-file", metavar="CSV", help="To what a file of kafka-consumer-groups says.")
    ] = None,
    from_group: Annotated[
        str | None, typer.Option("--from-group", metavar="GROUP", help="To where another group is.")
    ] = None,
    only_if: Annotated[
        int | None, typer.Option("--only-if", metavar="N", min=0, help="Only what is at N now; all else is refused.")
    ] = None,
    export: Annotated[
        bool, typer.Option("--export", help="Print the plan as the CSV that kafka-consumer-groups reads.")
    ] = False,
    execute: ExecuteOption = False,
    format_: FormatOption = None,
    lake: LakeOption = None,
    log: LogOption = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Set the offsets of a group that has no members. Where logs begin and end is known with --bootstrap only."""
    if export and (execute or format_):
        raise BadRequest("--export only prints: leave out --execute and --format")
    given = {
        "to_earliest": to_earliest or None,
        "to_latest": to_latest or None,
        "to_current": to_current or None,
        "to_offset": to_offset,
        "shift_by": shift_by,
        "to_datetime": to_datetime,
        "by_duration": by_duration,
        "from_file": from_file,
        "from_group": from_group,
    }
    now = now_ms()
    asked = _asked(group, _scope(topic, all_topics=all_topics), given, only_if, now)
    with hand(lake, log, bootstrap, kafka_config, config_file, format_, context.obj) as at, at.admin() as admin:
        if export:
            at.export(lambda lake: offset_resets.reset(lake, asked, admin, now), with_group=group is None)
        else:
            make = lambda lake: offset_resets.reset(lake, asked, admin, now)  # noqa: E731
            at.act("reset", "alterations", make, OF_ALTERATIONS, execute=execute)


def _asked(
    group: str | None,
    scope: dict[str, list[int] | None] | None,
    given: Mapping[str, object],
    only_if: int | None,
    now: int,
) -> "Reset":
    """Make of the options what is asked for; BadRequest where they make no sense together."""
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) != 1:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise BadRequest(f"say where to reset to, by one of {options}")
    [(strategy, value)] = chosen.items()
    copies = strategy in ("from_file", "from_group")
    if copies != (scope is None):
        raise BadRequest(
            f"--{strategy.replace('_', '-')} says itself which partitions"
            if copies
            else "say what to reset: --all-topics, or --topic TOPIC[:P,...]"
        )
    if group is None and strategy != "from_file":
        raise BadRequest("name the group to reset")
    at_ms = to_ms(str(value)) if strategy == "to_datetime" else None
    if strategy == "by_duration":
        at_ms = now - duration_ms(str(value))
    number = value if isinstance(value, int) else 0
    compute = {
        "to_earliest": of.to_earliest,
        "to_latest": of.to_latest,
        "to_current": of.to_current,
        "to_offset": lambda rows: of.to_offset(rows, number),
        "shift_by": lambda rows: of.shift_by(rows, number),
        "to_datetime": of.to_time,
        "by_duration": of.to_time,
    }.get(strategy)
    return Reset(group, strategy, compute, scope or {}, at_ms, str(value) if copies else "", only_if)


def _scope(topics: list[str] | None, *, all_topics: bool) -> dict[str, list[int] | None] | None:
    """Read `--topic T:0,1` and `--all-topics`; None where neither is given."""
    if all_topics and topics:
        raise BadRequest("--all-topics and --topic exclude each other")
    if not all_topics and not topics:
        return None
    scope: dict[str, list[int] | None] = {}
    for text in topics or ():
        named = _TOPIC.fullmatch(text)
        if named is None or named["topic"] in scope:
            raise BadRequest(f"--topic {text!r}: it is TOPIC or TOPIC:0,1,2, each topic once")
        scope[named["topic"]] = [int(each) for each in named["partitions"].split(",")] if named["partitions"] else None
    return scope
