"""What decides who is let in and what they may do: certificates, credentials, rights; read again when they change."""

import asyncio
import ipaddress
import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from offsetlake.errors import BadRequest
from offsetlake.serve.auth import acl, credentials, tls
from offsetlake.serve.auth.acl import EVERYTHING, Access, Acl
from offsetlake.serve.auth.credentials import Credentials, problems_of
from offsetlake.serve.auth.login_attempts import Attempts
from offsetlake.serve.auth.sasl import mechanisms
from offsetlake.serve.net.connections import MAX_IDLE, Connections
from offsetlake.serve.settings import Settings

LOG = logging.getLogger(__name__)
RELOAD_SECONDS = 1.0  # between reloads at the files
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - they are what is looked for


class Security:
    """Certificates, credentials and rights as they are now, and the connections that came in by them.

    | field       | is |
    |-------------|----|
    | tls, http_tls | for new connections, of Kafka's protocol and of HTTP; None: without TLS |
    | credentials | None: nobody has to log in |
    | mechanisms  | of SASL, on offer |
    | connections | all that there are |
    | attempts    | to log in |
    """

    def __init__(self, settings: Settings) -> None:
        """Read all files; BadRequest that names all that is wrong."""
        if wrong := problems(settings):
            raise BadRequest("; ".join(wrong))
        self._settings = settings
        self.connections = Connections(settings.max_connections, settings.max_connections_per_address)
        self.attempts = Attempts()
        self.mechanisms = mechanisms(
            passwords_are_safe=settings.tls_certificate is not None or is_loopback(settings.host)
        )
        self.tls: ssl.SSLContext | None = None
        self.http_tls: ssl.SSLContext | None = None
        self.credentials: Credentials | None = None
        self._rights: Acl | None = None
        self._files: list[_Files] = []
        of_tls = (settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
        if settings.tls_certificate is not None:
            self._keep(of_tls, self._read_certificates)
        if settings.credentials is not None:
            self._keep((settings.credentials,), self._read_credentials)
        if settings.rights is not None:
            self._rights = Acl(Path(settings.rights))
            self._keep((settings.rights,), self._rights.read)

    def access(self, principal: str) -> Access:
        """Give what a principal may do."""
        return EVERYTHING if self._rights is None else self._rights.access(principal)

    def authenticate_token(self, text: str) -> str | None:
        """Give the principal of a bearer token; None where there is no such token, or not any more."""
        return None if self.credentials is None else self.credentials.authenticate_token(text)

    def reload(self, *, force: bool = False) -> None:
        """Read again what has changed, or all; what cannot be read stays as it was before, and a line says so."""
        for files in self._files:
            files.reload(force=force)

    async def run(self) -> None:
        """Look at the files, and for connections that say nothing, again and again."""
        reloads = 0
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            self.reload()
            reloads += 1
            if reloads * RELOAD_SECONDS >= MAX_IDLE:
                reloads = 0
                self.connections.close_idle()

    def _keep(self, paths: tuple[str | None, ...], read: Callable[[], None]) -> None:
        files = _Files([Path(path) for path in paths if path is not None], read)
        files.read()
        self._files.append(files)

    def _read_certificates(self) -> None:
        of = self._settings
        self.tls, self.http_tls = _context(of), _context(replace(of, tls_client_ca=None))  # HTTP asks for tokens

    def _read_credentials(self) -> None:
        """Take newer credentials; who has no password any more, or another one, is asked again."""
        before = {} if self.credentials is None else self.credentials.users
        self.credentials = Credentials.read(Path(self._settings.credentials or ""))
        changed = {f"User:{name}" for name, user in before.items() if self.credentials.users.get(name) != user}
        for connection, client in self.connections:
            if client.principal in changed:
                LOG.info("%s from %s has to log in again: its password has changed", client.principal, client.address)
                connection.close()


class _Files:
    """Files that are read together."""

    def __init__(self, paths: list[Path], read: Callable[[], None]) -> None:
        self._paths, self.read = paths, read
        self._seen: list[tuple[int, ...] | None] | None = self._stamps()
        self._problem = ""

    def reload(self, *, force: bool) -> None:
        """Read them if one of them is another one; what cannot be read is tried again at the next look."""
        before, self._seen = self._seen, self._stamps()
        if self._seen == before and not force:
            return
        try:
            self.read()
        except (BadRequest, OSError) as error:
            if force or str(error) != self._problem:
                LOG.error("%s; what was read before still holds", error)  # noqa: TRY400 - a person's slip, no bug
            self._seen, self._problem = None, str(error)
        else:
            self._problem = ""
            LOG.info("read again: %s", ", ".join(map(str, self._paths)))

    def _stamps(self) -> list[tuple[int, ...] | None]:
        return [_stamp(path) for path in self._paths]


def problems(settings: Settings) -> list[str]:
    """Say all that is wrong with what the settings say of security, and with the files they name."""
    found = _problems_of_address(settings)
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        found.append("tls_certificate and tls_key go together: name both, or none")
    elif settings.tls_certificate is not None:
        found += problems_of(lambda: _context(settings))
    elif settings.tls_client_ca is not None:
        found.append("tls_client_ca wants TLS: name tls_certificate and tls_key too")
    if settings.credentials is not None:
        found += credentials.problems(Path(settings.credentials))
    if settings.rights is not None:
        found += acl.problems(Path(settings.rights))
    return found


def _problems_of_address(settings: Settings) -> list[str]:
    found = []
    asks_who = settings.credentials is not None or settings.tls_client_ca is not None
    if not (is_loopback(settings.host) or asks_who or settings.open_to_anyone):
        found.append(
            f"whoever reaches {settings.host} could write: without credentials or tls_client_ca only loopback addresses"
            " are served, unless you say open_to_anyone"
        )
    if settings.http is not None and not (is_loopback(settings.http[0]) or settings.open_to_anyone):
        found += [
            f"whoever reaches {settings.http[0]} could write by HTTP: name {what}, or say open_to_anyone"
            for what, named in (("credentials", settings.credentials), ("tls_certificate", settings.tls_certificate))
            if named is None
        ]
    if settings.host in _WILDCARDS and settings.advertised is None:
        found.append(f"nobody can connect to {settings.host}: say with advertised where clients are to")
    return found


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _context(settings: Settings) -> ssl.SSLContext:
    client_ca = None if settings.tls_client_ca is None else Path(settings.tls_client_ca)
    return tls.context(Path(settings.tls_certificate or ""), Path(settings.tls_key or ""), client_ca)


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        of = os.stat(path)  # noqa: PTH116 - the file behind a link
    except OSError:
        return None
    return of.st_mtime_ns, of.st_ctime_ns, of.st_size, of.st_ino
