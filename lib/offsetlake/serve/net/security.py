"""Security of the serving process: certificates, credentials and ACLs, which are reloaded when their files change."""

import asyncio
import ipaddress
import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from offsetlake.auth import acl, credentials, tls
from offsetlake.auth.acl import ALL_PERMISSIONS, Access, Acl
from offsetlake.auth.credentials import Credentials, problems_of
from offsetlake.auth.login_attempts import LoginAttempts
from offsetlake.auth.sasl import mechanisms
from offsetlake.errors import BadRequest
from offsetlake.serve.net.connections import MAX_IDLE_SECONDS, Connections
from offsetlake.serve.settings import Settings

LOG = logging.getLogger(__name__)
RELOAD_SECONDS = 1.0  # the interval in which the files are checked for changes
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


def security_protocol(settings: Settings) -> str:
    """Return Kafka's name of the security protocol of the listener."""
    encryption = "PLAINTEXT" if settings.tls_certificate is None else "SSL"
    return encryption if settings.credentials is None else f"SASL_{encryption}"


class Security:
    """The current certificates, credentials and ACLs, and the open connections.

    | Field         | Description |
    |---------------|-------------|
    | tls, http_tls | The contexts of new connections, of the Kafka protocol and of HTTP; None without TLS. |
    | credentials   | None if SASL authentication is not configured. |
    | mechanisms    | The SASL mechanisms that are offered. |
    | connections   | All open connections. |
    | attempts      | The login attempts. |
    """

    def __init__(self, settings: Settings) -> None:
        """Read all files; raise BadRequest with all errors in them and in the settings."""
        if errors := problems(settings):
            raise BadRequest("; ".join(errors))
        self._settings = settings
        self.connections = Connections(settings.max_connections, settings.max_connections_per_address)
        self.attempts = LoginAttempts()
        self.mechanisms = mechanisms(
            passwords_are_safe=settings.tls_certificate is not None or is_loopback(settings.host)
        )
        self.tls: ssl.SSLContext | None = None
        self.http_tls: ssl.SSLContext | None = None
        self.credentials: Credentials | None = None
        self._acl: Acl | None = None
        self._files: list[_Files] = []
        tls_files = (settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
        if settings.tls_certificate is not None:
            self._add(tls_files, self._read_certificates)
        if settings.credentials is not None:
            self._add((settings.credentials,), self._read_credentials)
        if settings.acl is not None:
            self._acl = Acl(Path(settings.acl))
            self._add((settings.acl,), self._acl.read)

    def has_logins(self) -> bool:
        """Check whether clients log in, with a password or a certificate."""
        return self._settings.credentials is not None or self._settings.tls_client_ca is not None

    def access(self, principal: str) -> Access:
        """Return the permissions of a principal."""
        return ALL_PERMISSIONS if self._acl is None else self._acl.access(principal)

    def authenticate_token(self, text: str) -> str | None:
        """Return the principal of a bearer token, or None if the token is unknown or expired."""
        return None if self.credentials is None else self.credentials.authenticate_token(text)

    def reload(self, *, force: bool = False) -> None:
        """Reload the files that have changed, or with `force` all; an invalid one is logged and not used."""
        for files in self._files:
            files.reload(force=force)

    async def run(self) -> None:
        """Reload changed files and close idle connections, periodically."""
        reloads = 0
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            self.reload()
            reloads += 1
            if reloads * RELOAD_SECONDS >= MAX_IDLE_SECONDS:
                reloads = 0
                self.connections.close_idle()

    def _add(self, paths: tuple[str | None, ...], read: Callable[[], None]) -> None:
        files = _Files([Path(path) for path in paths if path is not None], read)
        files.read()
        self._files.append(files)

    def _read_certificates(self) -> None:
        self.tls = _context(self._settings)
        self.http_tls = _context(replace(self._settings, tls_client_ca=None))  # HTTP clients authenticate by tokens

    def _read_credentials(self) -> None:
        """Read the credentials, and close the connections of users whose password was changed or removed."""
        previous = {} if self.credentials is None else self.credentials.users
        self.credentials = Credentials.read(Path(self._settings.credentials or ""))
        changed = {f"User:{name}" for name, user in previous.items() if self.credentials.users.get(name) != user}
        for connection, client in self.connections:
            if client.principal in changed:
                LOG.info(
                    "Connection of %s from %s closed: its password was changed or removed",
                    client.principal,
                    client.address,
                )
                connection.close()


class _Files:
    """Files that are read together by one function."""

    def __init__(self, paths: list[Path], read: Callable[[], None]) -> None:
        self._paths, self.read = paths, read
        self._read_stamps: list[tuple[int, ...] | None] | None = self._stamps()
        self._problem = ""

    def reload(self, *, force: bool) -> None:
        """Read the files if one of them has changed; after an error they are read again at the next call."""
        previous, self._read_stamps = self._read_stamps, self._stamps()
        if self._read_stamps == previous and not force:
            return
        try:
            self.read()
        except (BadRequest, OSError) as error:
            if force or str(error) != self._problem:
                LOG.error("%s; the previous contents remain in effect", error)  # noqa: TRY400 - an operator's mistake
            self._read_stamps, self._problem = None, str(error)
        else:
            self._problem = ""
            LOG.info("Reloaded %s", ", ".join(map(str, self._paths)))

    def _stamps(self) -> list[tuple[int, ...] | None]:
        return [_stamp(path) for path in self._paths]


def problems(settings: Settings) -> list[str]:
    """Return all errors in the security settings and in the files that they name."""
    errors = _listener_problems(settings)
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        errors.append("tls_certificate and tls_key are required together: set both or neither")
    elif settings.tls_certificate is not None:
        errors += problems_of(lambda: _context(settings))
    elif settings.tls_client_ca is not None:
        errors.append("tls_client_ca requires TLS: set tls_certificate and tls_key")
    if settings.credentials is not None:
        errors += credentials.problems(Path(settings.credentials))
    if settings.acl is not None:
        errors += acl.problems(Path(settings.acl))
    return errors


def _listener_problems(settings: Settings) -> list[str]:
    errors = []
    authenticates = settings.credentials is not None or settings.tls_client_ca is not None
    hosts = (settings.host,) if settings.share is None else (settings.host, settings.share[0])
    errors += [
        f"A listener on the non-loopback address {host} requires authentication: set credentials or tls_client_ca, or "
        "set open_to_anyone"
        for host in hosts
        if not (is_loopback(host) or authenticates or settings.open_to_anyone)
    ]
    if settings.http is not None and not (is_loopback(settings.http[0]) or settings.open_to_anyone):
        errors += [
            f"An HTTP listener on the non-loopback address {settings.http[0]} requires {name}: set it, or set "
            "open_to_anyone"
            for name, value in (("credentials", settings.credentials), ("tls_certificate", settings.tls_certificate))
            if value is None
        ]
    wildcard = next((host for host in hosts if host in _WILDCARDS), None)
    if wildcard is not None and settings.advertised is None:
        errors.append(
            f"Clients cannot connect to the wildcard address {wildcard}: set advertised to the host and port that "
            "clients connect to"
        )
    return errors


def is_loopback(host: str) -> bool:
    """Check whether an address is reachable only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _context(settings: Settings) -> ssl.SSLContext:
    client_ca = None if settings.tls_client_ca is None else Path(settings.tls_client_ca)
    return tls.context(Path(settings.tls_certificate or ""), Path(settings.tls_key or ""), client_ca)


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Return a value that changes with the file, or with the target of a symbolic link; None if it does not exist."""
    try:
        status = os.stat(path)  # noqa: PTH116 - follows symbolic links
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
