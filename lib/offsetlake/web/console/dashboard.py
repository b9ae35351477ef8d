"""The dashboard in Grafana to which pages link."""

from contextvars import ContextVar
from urllib.parse import quote, urlsplit

from offsetlake.errors import BadRequest

DASHBOARD: ContextVar[str] = ContextVar("dashboard", default="")
"""The address of the dashboard, in which GROUP stands for the name of a group; empty for none."""

GROUP = "{group}"
_ALL = "$__all"  # the value of a variable of Grafana that selects everything


def check_address(address: str) -> str:
    """Return the address of a dashboard; raise BadRequest if browsers could not open it."""
    if urlsplit(address).scheme not in {"http", "https"} or not urlsplit(address).netloc or not address.isprintable():
        raise BadRequest(f"Invalid address of the dashboard {address!r}: expected https://HOST/PATH.")
    return address


def dashboard(group: str) -> str:
    """Return the address of the dashboard for a group, or for all groups if its name is empty; empty for none."""
    return DASHBOARD.get().replace(GROUP, quote(group or _ALL, safe=""))
