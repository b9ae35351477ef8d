"""The settings of the serving process, read from texts as files and options have them."""

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


def read_settings(lake: str, log: str, of: Mapping[str, str]) -> Settings:
    """Read settings by the names of `config.SERVE`; BadRequest that says all that is wrong with them."""
    read: dict[str, Any] = {}
    wrong = []
    for name, text in of.items():
        try:
            read[name] = _READERS.get(name, _text)(name, text)
        except BadRequest as error:
            wrong.append(str(error))
    if not wrong:
        host, port = read.pop("kafka")
        settings = Settings(lake, log, host, port, **read)
        wrong = problems(settings)
        if not wrong:
            return settings
    raise BadRequest("; ".join(wrong))


def _text(_name: str, text: str) -> str:
    return text


def _address(name: str, text: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 2**16 - 1:
        raise BadRequest(f"--{name} wants HOST:PORT, such as 127.0.0.1:9092, not {text!r}")
    return match["v6"] or match["host"], int(match["port"])


def _one_of(known: type[StrEnum]) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text not in [*known]:
            raise BadRequest(f"{name} is {text!r}: it is one of {', '.join(known)}")
        return text

    return read


def _number_to(most: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise BadRequest(f"{name} is {text!r}: it is a number from 1 to {most}")
        return int(text)

    return read


def _share(name: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise BadRequest(f"{name} is {text!r}: it is a share of all commits from 0 (none) to 1 (all)")
    return share


def _flag(name: str, text: str) -> bool:
    if text not in {"true", "false"}:
        raise BadRequest(f"{name} is {text!r}: it is true or false")
    return text == "true"


def _topics(name: str, text: str) -> dict[str, int]:
    """Read NAME:PARTITIONS,..."""
    found: dict[str, int] = {}
    for part in text.split(","):
        match = _TOPIC.fullmatch(part.strip())
        if match is None or int(match["partitions"]) < 1:
            raise BadRequest(
                f"--{name} wants NAME:PARTITIONS,... such as orders:12,payments:6; {part.strip()!r} is none"
            )
        if match["name"] in found:
            raise BadRequest(f"--{name} names {match['name']} twice")
        found[match["name"]] = int(match["partitions"])
    return found


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
