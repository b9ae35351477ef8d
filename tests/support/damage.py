"""Ways in which a power failure, a full disk, a copy or a person damages the files of a table."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from support.e2e.delta_files import active_paths

Damage = Callable[[Path], object]
"""Damages the table in a folder; raises FileNotFoundError or IndexError if the table has no such file."""


def _log(table: Path) -> Path:
    return table / "_delta_log"


def _entry(table: Path, place: int) -> Path:
    return sorted(_log(table).glob("*.json"))[place]


def _halve(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


def _without_last_line(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").rstrip("\n").split("\n")
    file.write_text("\n".join(lines[:-1]), encoding="utf-8")


def _name_checkpoint(table: Path, content: bytes | None) -> None:
    """Write a `_last_checkpoint` that names a checkpoint of the newest version with this content, or without a file."""
    version = int(_entry(table, -1).name[:20])
    checkpoint = _log(table) / f"{version:020}.checkpoint.parquet"
    checkpoint.unlink(missing_ok=True)
    if content is not None:
        checkpoint.write_bytes(content)
    (_log(table) / "_last_checkpoint").write_text(json.dumps({"version": version, "size": 3}), encoding="utf-8")


def flip_page(table: Path) -> None:
    """Change a bit in the first page of a data file."""
    column = pq.read_metadata(_data(table)).row_group(0).column(0)
    content = bytearray(_data(table).read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    _data(table).write_bytes(bytes(content))


def _data(table: Path) -> Path:
    return table / active_paths(table)[0]


COMMITS: dict[str, Damage] = {
    "newest commit empty": lambda table: _entry(table, -1).write_bytes(b""),
    "newest commit of zeros": lambda table: _entry(table, -1).write_bytes(bytes(_entry(table, -1).stat().st_size)),
    "newest commit torn": lambda table: _halve(_entry(table, -1)),
    "newest commit changed": lambda table: _flip(_entry(table, -1)),
    "newest commit without its last line": lambda table: _without_last_line(_entry(table, -1)),
    "newest commit without actions": lambda table: _entry(table, -1).write_text('{"commitInfo":{"timestamp":1}}'),
    "newest commit missing": lambda table: _entry(table, -1).unlink(),
    "commit in the middle empty": lambda table: _entry(table, -2).write_bytes(b""),
    "commit in the middle torn": lambda table: _halve(_entry(table, -2)),
    "commit in the middle missing": lambda table: _entry(table, -2).unlink(),
    "log missing": lambda table: shutil.rmtree(_log(table)),
    "table missing": shutil.rmtree,
}
"""Damage by which commits of a table are lost."""

CHECKPOINTS: dict[str, Damage] = {
    "checkpoint missing": lambda table: _name_checkpoint(table, None),
    "checkpoint empty": lambda table: _name_checkpoint(table, b""),
    "checkpoint torn": lambda table: _name_checkpoint(table, b"PAR1" + bytes(50)),
}
"""Damage of checkpoints, without which the commits are whole."""

HINTS: dict[str, Damage] = {
    "hint empty": lambda table: (_log(table) / "_last_checkpoint").write_bytes(b""),
    "hint torn": lambda table: (_log(table) / "_last_checkpoint").write_bytes(b'{"version":9,"si'),
}
"""Damage of `_last_checkpoint` that Delta readers ignore."""

DATA: dict[str, Damage] = {
    "data file missing": lambda table: _data(table).unlink(),
    "data file empty": lambda table: _data(table).write_bytes(b""),
    "data file cut": lambda table: _halve(_data(table)),
}
"""Damage of data files."""
