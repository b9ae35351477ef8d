"""The console of several lakes: a page that lists their clusters, and below a path for each the pages of its lake."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from offsetlake.web.console.access import Gate, Reader
from offsetlake.web.console.app import checked
from offsetlake.web.console.pages import render
from offsetlake.web.console.routes import sign_in, static_files
from offsetlake.web.console.state import CLUSTERS, PageState


@dataclass(frozen=True, slots=True)
class ClusterConsole:
    """The console of one lake, and where the lake is."""

    place: str
    console: ASGIApp


def clusters_application(clusters: Mapping[str, ClusterConsole], gate: Gate) -> ASGIApp:
    """Return the application for lakes by the names of their clusters, for the visitors that the gate permits.

    Args:
        clusters: The names contain letters, digits, dots, hyphens and underscores.
        gate: Authenticates visitors; that of the consoles, too, so that people sign in once.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)

    @app.get("/")
    def every(_visitor: Reader) -> Response:
        places = {name: cluster.place for name, cluster in clusters.items()}
        return HTMLResponse(render("clusters.html", state=PageState(), places=places, prefix=CLUSTERS))

    @app.get(CLUSTERS + "{name}")
    def first_page(_visitor: Reader, name: str) -> Response:
        if name not in clusters:
            raise HTTPException(404)
        return RedirectResponse(f"{CLUSTERS}{name}/", 307)

    sign_in.add_routes(app)
    static_files.add_routes(app)
    own = checked(app, gate)

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        name, slash, _ = str(scope.get("path", "")).removeprefix(CLUSTERS).partition("/")
        if scope.get("path", "").startswith(CLUSTERS) and slash and name in clusters:
            await clusters[name].console({**scope, "root_path": CLUSTERS + name}, receive, send)
        else:
            await own(scope, receive, send)

    return dispatch
