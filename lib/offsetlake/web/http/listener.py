"""The feature of a serving process that answers over HTTP."""

import logging

from offsetlake.serve.core import Core
from offsetlake.serve.feature import Feature
from offsetlake.web.http.server import HttpServer

LOG = logging.getLogger(__name__)


class Http(Feature):
    """Serves HTTP at a host and a port, also while the log is loaded."""

    def __init__(self, core: Core, host: str, port: int) -> None:
        self._core, self._host, self._port = core, host, port
        self._server: HttpServer | None = None

    async def start(self) -> None:
        """Listen; raise BadRequest if the address cannot be used."""
        self._server = HttpServer(self._core, self._host, self._port)
        scheme = "http" if self._core.settings.tls_certificate is None else "https"
        LOG.info("Serving HTTP on %(url)s", {"url": f"{scheme}://{self._host}:{self._server.port}"})

    async def close(self) -> None:
        """Finish the requests under way, and stop."""
        if self._server is not None:
            await self._server.close()
