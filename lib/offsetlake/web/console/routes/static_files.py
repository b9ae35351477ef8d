"""The style sheets, scripts and pictures of the pages."""

from importlib.resources import files
from pathlib import PurePath

from fastapi import FastAPI
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from offsetlake.web.console.access import PUBLIC

_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def add_routes(app: FastAPI) -> None:
    """Add the route that serves the files of the package's folder `static`."""
    folder = files("offsetlake.web.console").joinpath("static")
    names = {file.name for file in folder.iterdir()}

    @app.get("/static/{name}", dependencies=[PUBLIC])
    def static(name: str) -> Response:
        media_type = _MEDIA_TYPES.get(PurePath(name).suffix)
        if name not in names or media_type is None:
            raise HTTPException(404)
        return Response(folder.joinpath(name).read_bytes(), media_type=media_type)
