"""Renders the pages of the console from templates, which escape all texts."""

import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import cache

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from offsetlake.queries.lag import shown_lag
from offsetlake.util.escaping import visible
from offsetlake.util.times import to_iso
from offsetlake.web.console.access import VISITOR
from offsetlake.web.console.changing.forms import KINDS, KINDS_OF_SHARE
from offsetlake.web.console.dashboard import dashboard
from offsetlake.web.console.state import BASE, REJECTED, PageState, cluster
from offsetlake.web.console.words import effect, expires, headline, tone

NAVIGATION = (
    ("Now", (("/", "Groups"), ("/lag", "Lag"), ("/attention", "Attention"), ("/share", "Share groups"))),
    ("Decide", (("/review", "Review"), ("/what-if", "What-if"))),
    ("Look back", (("/runs", "Runs"), ("/committers", "Busiest"), ("/quarantine", "Quarantine"))),
    ("Whole lake", (("/report", "Report"), ("/checks", "Checks"), ("/sql", "SQL"))),
)
"""The paths of the pages that every page links to, with their titles, in groups."""

_PARTS = {"/group": "/", "/partition": "/", "/step": "/", "/topic": "/", "/client": "/", "/share-group": "/share"}
"""The page in the navigation that a page belongs to."""

PATH: ContextVar[str] = ContextVar("path", default="")
"""The path of the page that is requested, below `BASE`."""


def no_notes(_group_id: str) -> Sequence[str]:
    """Return no sentences, for pages without a lake."""
    return ()


NOTES: ContextVar[Callable[[str], Sequence[str]]] = ContextVar("notes", default=no_notes)
"""Returns sentences about what the lake of the page does not know about a group, or about all if that is empty."""


def current_page() -> str:
    """Return the path of the page in the navigation that is shown; empty for others."""
    return _PARTS.get(PATH.get(), PATH.get())


NOT_COMPRESSED = "identity"
"""The encoding of responses that must not be compressed: the length of a compressed page that contains a secret and
what others can put into its address reveals the secret (BREACH)."""

_FIELD_OF_FORMS = 'name="form_token"'
_CODE = re.compile("`([^`]+)`")
_OPTION = re.compile(r"(?<!\S)(--[\w-]+=?)")


def render(template: str, **values: object) -> str:
    """Return a page; unprintable characters of the filter `text` are shown as escapes."""
    return _environment().get_template(template).render(**values)


def page_response(
    template: str, state: PageState, command: str, again_after: int | None = None, **values: object
) -> HTMLResponse:
    """Return the response with a page, which shows the `command` that has the same answer.

    If its answer is still being computed, the page loads itself again after `again_after` seconds, or as soon as nobody
    types into it; the header Retry-After tells other clients. The status is 400 if an instant was rejected.
    """
    headers = {} if again_after is None else {"Retry-After": str(again_after)}
    page = render(template, state=state, command=command, again_after=again_after, **values)
    if _FIELD_OF_FORMS in page:
        headers["Content-Encoding"] = NOT_COMPRESSED
    return HTMLResponse(page, 400 if REJECTED.get() else 200, headers)


def as_sentence(message: str) -> str:
    """Return the message of an error, which follows "error: " on the command line, as a sentence."""
    return message[:1].upper() + message[1:] + ("" if message.endswith((".", "?")) else ".")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["text"] = lambda value: "" if value is None else visible(str(value))
    environment.filters["sentences"] = _sentences
    environment.filters["options"] = _options
    environment.filters["number"] = lambda value: "" if value is None else f"{value:,}"
    environment.filters["time"] = lambda value: "" if value is None else to_iso(value)
    environment.filters["tone"] = tone
    environment.globals["shown_lag"] = shown_lag
    environment.globals["effect"] = effect
    environment.globals["headline"] = headline
    environment.globals["expires"] = expires
    environment.globals["navigation"] = NAVIGATION
    environment.globals["current_page"] = current_page
    environment.globals["base"] = BASE.get
    environment.globals["cluster"] = cluster
    environment.globals["dashboard"] = dashboard
    environment.globals["rejected"] = REJECTED.get
    environment.globals["visitor"] = VISITOR.get
    environment.globals["notes"] = NOTES.get
    environment.globals["change_kinds"] = KINDS
    environment.globals["change_kinds_of_share"] = KINDS_OF_SHARE
    return environment


def _sentences(text: str) -> Markup:
    """Return a text of ours as HTML: what is in backticks is code."""
    parts = enumerate(_CODE.split(visible(text)))
    return Markup("").join(Markup("<code>{}</code>").format(part) if number % 2 else part for number, part in parts)


def _options(command: str) -> Markup:
    """Return a command as HTML in which no line ends within the name of an option: browsers break after `--`."""
    parts = enumerate(_OPTION.split(visible(command)))
    word = Markup('<span class="word">{}</span>')
    return Markup("").join(word.format(part) if number % 2 else part for number, part in parts)
