"""Every relative link of the documents leads to a file, and to a heading where it names one; so does every path."""

import re
from pathlib import Path

import pytest

from support.documents import NOTES, ROOT

PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").rglob("*.md"), *NOTES})
ABOUT_THE_CODE = [path for path in NOTES if ROOT / "tests" not in path.parents] + [ROOT / "CONTRIBUTING.md"]
OF_KAFKA = "group-coordinator/"
"""The beginning of paths in Kafka's repository."""
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|\w+\.py)`")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken = []
    for path, anchor in _LINK.findall(page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{path}#{anchor}")
    assert broken == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = {path for path, _ in _LINK.findall(index)}
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - linked == {"README.md"}


def test_every_page_beside_the_code_is_linked() -> None:
    linked = {
        (page.parent / path).resolve()
        for page in PAGES
        for path, _ in _LINK.findall(page.read_text(encoding="utf-8"))
        if path and (page.parent / path).resolve() != page
    }
    assert {*ABOUT_THE_CODE} - linked == set()


@pytest.mark.parametrize("page", ABOUT_THE_CODE, ids=[str(page.relative_to(ROOT)) for page in ABOUT_THE_CODE])
def test_paths_in_backquotes_exist(page: Path) -> None:
    folders = (ROOT, ROOT / "lib" / "offsetlake", page.parent)
    named = {*_PATH.findall(page.read_text(encoding="utf-8"))}
    paths = {path for path in named if "NAME" not in path and not path.startswith(OF_KAFKA)}
    places = {path: [folder / f"{path}{end}" for folder in folders for end in ("", ".py")] for path in paths}
    assert [path for path, found in places.items() if not any(place.exists() for place in found)] == []


def test_the_helpers_of_tests_are_listed() -> None:
    folder = ROOT / "tests" / "support"
    names = {f"{path.name}/" if path.is_dir() else path.name for path in folder.iterdir()}
    listed = {*re.findall(r"^\| `(.+?)` \|", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE)}
    assert names - {"README.md", "__pycache__/"} == listed
