"""SQL statements in files are described and used, and their placeholders are replaced."""

import re
from pathlib import Path
from string import Formatter

import pytest

from offsetlake.lake.sql.statements import statement

FOLDER = Path(__file__).parents[3] / "schemas" / "queries"
SOURCES = Path(__file__).parents[3] / "lib"
NAMES = sorted(file.stem for file in FOLDER.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_file_describes_its_statement_and_is_used(name: str) -> None:
    text = (FOLDER / f"{name}.sql").read_text(encoding="utf-8")
    assert text.startswith("-- ")
    assert any(f'"{name}"' in file.read_text(encoding="utf-8") for file in SOURCES.rglob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_placeholders_are_described_and_replaced(name: str) -> None:
    lines = (FOLDER / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    body = "\n".join(line for line in lines if not line.startswith("--"))
    placeholders = {part for _, part, _, _ in Formatter().parse(body) if part}
    comments = "\n".join(line for line in lines if line.startswith("--"))
    assert placeholders == set(re.findall(r"\{(\w+)\}", comments))
    replaced = statement(name, **{part: f"<{part}>" for part in placeholders})
    assert "--" not in replaced
    assert all(f"<{part}>" in replaced for part in placeholders)
