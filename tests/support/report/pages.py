"""Parses a report with the parser of the standard library."""

from base64 import b64decode
from dataclasses import dataclass, field
from html.parser import HTMLParser
from xml.etree import ElementTree

_SVG = "{http://www.w3.org/2000/svg}"


@dataclass
class Section:
    """One section: its title, its paragraphs, its table with the headings first, and the texts in its chart."""

    title: str = ""
    paragraphs: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    picture: list[str] | None = None


class Page(HTMLParser):
    """The content of a report: title, introduction, facts and sections; `tags` are the names of all elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.title, self.facts, self.introduction, self.tags = "", {}, [], set[str]()  # type: ignore[var-annotated]
        self.sections: dict[str, Section] = {}
        self._section, self._text = Section(), ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag in ("section", "h1", "h2", "p", "th", "td", "dt", "dd"):
            self._text = ""
        if tag == "section":
            self._section = Section()
        elif tag == "tr":
            self._section.rows.append([])
        elif tag == "img":
            kind, content = str(dict(attributes)["src"]).split(",", 1)
            assert kind == "data:image/svg+xml;base64"
            picture = ElementTree.fromstring(b64decode(content))  # noqa: S314 - written by the code under test
            self._section.picture = ["".join(text.itertext()) for text in picture.iter(f"{_SVG}text")]

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        text = " ".join(self._text.split())
        if tag == "h1":
            self.title = text
        elif tag == "h2":
            self._section.title = text
            self.sections[text] = self._section
        elif tag == "p":
            (self._section.paragraphs if self.sections else self.introduction).append(text)
        elif tag in ("th", "td"):
            self._section.rows[-1].append(text)
        elif tag == "dt":
            self._name = text
        elif tag == "dd":
            self.facts[self._name] = text
