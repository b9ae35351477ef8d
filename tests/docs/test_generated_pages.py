"""The pages that `make docs` generates are current, and name what there is."""

import importlib.util
from types import ModuleType

import pytest

from offsetlake.lake.definitions import TABLES
from support.documents import ROOT, in_help


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = generator()


@pytest.mark.parametrize("page", GENERATE.PAGES)
def test_generated_page_is_current(page: str) -> None:
    stored = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert stored == GENERATE.PAGES[page](), f"docs/{page} is not current; run `make docs`"


def test_cli_reference_has_every_command() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert [command for command in in_help() if f"\n## {command}\n" not in page] == []


def test_tables_page_has_every_table() -> None:
    page = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    assert [table for table in TABLES if f"\n## {table}\n" not in page] == []


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("Only groups like this: * ? [abc].", r"Only groups like this: \* ? [abc]."),
        ("table|json", r"table\|json"),
        ("as `a*b` writes", "as `a*b` writes"),
        ("1 <= x", r"1 \<= x"),
    ],
)
def test_cells_escape_what_markdown_would_format(text: str, cell: str) -> None:
    assert GENERATE._cell(text) == cell
