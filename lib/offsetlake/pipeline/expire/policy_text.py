"""Reads the table `retention` of a settings file, and writes it; errors name the line."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from offsetlake.errors import BadRequest
from offsetlake.rules.policy import Override, RetentionPolicy
from offsetlake.util.patterns import pattern_problem
from offsetlake.util.times import kept_ms, kept_text

_OVERRIDE_KEYS = ("group", "topic", "retention")


def read_policy(table: object, text: str, name: str, default_ms: int | None) -> RetentionPolicy:
    """Return the policy that the table describes.

    Args:
        table: The parsed table.
        text: The text of the whole file, to find the line of an error; empty if the file has several such tables.
        name: The name of the file in error messages.
        default_ms: The default retention in ms if the table has none; None if the table must have one.

    Raises:
        BadRequest: The table is invalid; the message contains the line.

    """
    where = _Lines(text, name)
    if not isinstance(table, dict):
        raise where.error(0, "retention", "expected a table [retention] with default and [[retention.override]].")
    if unknown := sorted(set(table) - {"default", "override", "share_idle"}):
        raise where.error(0, unknown[0], "unknown key. Known: default, override, share_idle.")
    overrides = table.get("override", [])
    if not isinstance(overrides, list) or not all(isinstance(override, dict) for override in overrides):
        raise where.error(0, "override", "expected one [[retention.override]] for each override.")
    if "default" in table or default_ms is None:
        default_ms = _duration(table.get("default"), where, 0, "default")
    share_idle_ms = _duration(table["share_idle"], where, 0, "share_idle") if "share_idle" in table else None
    return RetentionPolicy(default_ms, tuple(_overrides(overrides, where)), share_idle_ms)


def parse_policy(text: str, name: str) -> RetentionPolicy:
    """Return the policy of a text in TOML with the table `retention` alone.

    Raises:
        BadRequest: The text is not TOML or has other tables, or the policy is invalid; the message contains the line.

    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadRequest(f"{name}: invalid TOML: {error}.") from error
    if [*table] != ["retention"]:
        raise BadRequest(f"{name}: expected the table [retention], with its overrides, and nothing else.")
    return read_policy(table["retention"], text, name, None)


def policy_text(policy: RetentionPolicy) -> str:
    """Return the table `retention` in TOML, from which `parse_policy` reads the same policy."""
    lines = ["[retention]", f'default = "{kept_text(policy.default_ms)}"']
    if policy.share_idle_ms is not None:
        lines.append(f'share_idle = "{kept_text(policy.share_idle_ms)}"')
    for override in policy.overrides:
        lines += [
            "",
            "[[retention.override]]",
            f"group = {_quoted(override.group)}",
            f"topic = {_quoted(override.topic)}",
            f'retention = "{kept_text(override.retention_ms)}"',
        ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a basic string of TOML, whose escapes are those of JSON, and which excludes one more character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _overrides(overrides: list[Mapping[str, Any]], where: "_Lines") -> Iterator[Override]:
    for number, override in enumerate(overrides, start=1):
        for key, value in override.items():
            if key not in _OVERRIDE_KEYS:
                raise where.error(number, key, f"unknown key. Known: {', '.join(_OVERRIDE_KEYS)}.")
            if key != "retention" and (problem := pattern_problem(value)):
                raise where.error(number, key, problem)
        if "retention" not in override or not override.keys() & {"group", "topic"}:
            raise where.error(number, "", "an override needs a retention, and a group or a topic.")
        retention = _duration(override["retention"], where, number, "retention")
        yield Override(override.get("group", "*"), override.get("topic", "*"), retention)


def _duration(value: object, where: "_Lines", number: int, key: str) -> int:
    if not isinstance(value, str):
        raise where.error(number, key, "a duration must be a string such as '7d'.")
    try:
        return kept_ms(value, minutes=True)  # Kafka's setting is offsets.retention.minutes
    except BadRequest as error:
        raise where.error(number, key, str(error)) from error


class _Lines:
    """Finds the line of a key of the table `retention`, or of one of its overrides, in the TOML text."""

    def __init__(self, text: str, name: str) -> None:
        self._lines, self._name = text.splitlines(), name

    def error(self, override: int, key: str, problem: str) -> BadRequest:
        """Return an error with the line of a key; `override` is the number of an override from 1, or 0 for none."""
        if not self._lines:
            where = f"override {override} of retention" if override else "retention"
            return BadRequest(f"{self._name}, {where}: {key or 'override'}: {problem}")
        header = r"\[\[?\s*retention\s*\.\s*override\s*\]" if override or key == "override" else r"\[\s*retention\s*\]"
        starts = [number for number, line in enumerate(self._lines) if re.match(rf"\s*{header}", line)]
        start = starts[max(override - 1, 0)] if len(starts) >= max(override, 1) else 0
        matching = (number for number in range(start, len(self._lines)) if key and self._begins(number, key))
        return BadRequest(f"{self._name}, line {next(matching, start) + 1}: {key or 'override'}: {problem}")

    def _begins(self, number: int, key: str) -> bool:
        return re.match(rf"""\s*["']?{re.escape(key)}["']?\s*=""", self._lines[number]) is not None
