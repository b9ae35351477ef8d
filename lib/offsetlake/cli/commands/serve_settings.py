"""Reads the settings of the serving process from the texts of a settings file and of options."""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from offsetlake.errors import BadRequest
from offsetlake.serve.logs import LogFormat
from offsetlake.serve.net.security import problems
from offsetlake.serve.settings import Settings
from offsetlake.serve.writes.rounds import Flush

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:]+)\]|(?P<host>[^:]+)):(?P<port>[0-9]{1,5})")
_TOPIC = re.compile(r"(?P<name>[a-zA-Z0-9._-]{1,249}):(?P<partitions>[0-9]{1,9})")


def read_settings(lake: str, log: str, texts: Mapping[str, str]) -> Settings:
    """Return the settings from texts by the names of `config.SERVE`; raise BadRequest with all errors at once."""
    values: dict[str, Any] = {}
    errors = []
    for name, text in texts.items():
        try:
            values[name] = _READERS.get(name, _text)(name, text)
        except BadRequest as error:
            errors.append(str(error))
    if not errors:
        host, port = values.pop("kafka")
        settings = Settings(lake, log, host, port, **values)
        errors = problems(settings)
        if not errors:
            return settings
    raise BadRequest("; ".join(error.removesuffix(".") for error in errors) + ".")


def _text(_name: str, text: str) -> str:
    return text


def _address(name: str, text: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 2**16 - 1:
        raise BadRequest(f"Invalid {name} {text!r}: expected HOST:PORT, such as 127.0.0.1:9092.")
    return match["v6"] or match["host"], int(match["port"])


def _one_of(known: type[StrEnum]) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text not in [*known]:
            raise BadRequest(f"Invalid {name} {text!r}: expected one of {', '.join(known)}.")
        return text

    return read


def _number_to(maximum: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= maximum:
            raise BadRequest(f"Invalid {name} {text!r}: expected a number from 1 to {maximum}.")
        return int(text)

    return read


def _share(name: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise BadRequest(f"Invalid {name} {text!r}: expected a share of all commits from 0 (none) to 1 (all).")
    return share


def _flag(name: str, text: str) -> bool:
    if text not in {"true", "false"}:
        raise BadRequest(f"Invalid {name} {text!r}: expected true or false.")
    return text == "true"


def _topics(name: str, text: str) -> dict[str, int]:
    """Return the partition count by topic of NAME:PARTITIONS,..."""
    partitions: dict[str, int] = {}
    for part in text.split(","):
        match = _TOPIC.fullmatch(part.strip())
        if match is None or int(match["partitions"]) < 1:
            raise BadRequest(
                f"Invalid {name} {part.strip()!r}: expected NAME:PARTITIONS,... such as orders:12,payments:6."
            )
        if match["name"] in partitions:
            raise BadRequest(f"Invalid {name}: the topic {match['name']} is named twice.")
        partitions[match["name"]] = int(match["partitions"])
    return partitions


_READERS: Mapping[str, Callable[[str, str], Any]] = {
    "kafka": _address,
    "http": _address,
    "advertised": _address,
    "topics": _topics,
    "flush": _one_of(Flush),
    "log_format": _one_of(LogFormat),
    "log_partitions": _number_to(10_000),
    "max_connections": _number_to(1_000_000),
    "max_connections_per_address": _number_to(1_000_000),
    "commits_per_second": _number_to(1_000_000),
    "commits_recorded": _share,
    "open_to_anyone": _flag,
}
