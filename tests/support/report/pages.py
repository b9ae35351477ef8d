"""A report as a test reads it: by the standard library's own parser."""

from base64 import b64decode
from dataclasses import dataclass, field
from html.parser import HTMLParser
from xml.etree import ElementTree

_SVG = "{http://www.w3.org/2000/svg}"


@dataclass
class Part:
    """One section: its heading, its sentences, its table with the headings first, what its picture says."""

    title: str = ""
    says: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    picture: list[str] | None = None


class Page(HTMLParser):
    """What a person sees of a report; `tags` are all elements there are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.title, self.facts, self.says, self.tags = "", {}, [], set[str]()  # type: ignore[var-annotated]
        self.parts: dict[str, Part] = {}
        self._part, self._text = Part(), ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag in ("section", "h1", "h2", "p", "th", "td", "dt", "dd"):
            self._text = ""
        if tag == "section":
            self._part = Part()
        elif tag == "tr":
            self._part.rows.append([])
        elif tag == "img":
            kind, content = str(dict(attributes)["src"]).split(",", 1)
            assert kind == "data:image/svg+xml;base64"
            picture = ElementTree.fromstring(b64decode(content))  # noqa: S314 - our own
            self._part.picture = ["".join(text.itertext()) for text in picture.iter(f"{_SVG}text")]

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        text = " ".join(self._text.split())
        if tag == "h1":
            self.title = text
        elif tag == "h2":
            self._part.title = text
            self.parts[text] = self._part
        elif tag == "p":
            (self._part.says if self.parts else self.says).append(text)
        elif tag in ("th", "td"):
            self._part.rows[-1].append(text)
        elif tag == "dt":
            self._name = text
        elif tag == "dd":
            self.facts[self._name] = text
