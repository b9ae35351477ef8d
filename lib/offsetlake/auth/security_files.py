"""The files of certificates, credentials and ACLs of a server, which are read again when they change."""

import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from offsetlake.auth import acl, credentials, tls
from offsetlake.auth.acl import ALL_PERMISSIONS, Access, Acl
from offsetlake.auth.credentials import Credentials, problems_of
from offsetlake.auth.login_attempts import LoginAttempts
from offsetlake.errors import BadRequest

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SecurityPaths:
    """The paths of the files.

    | Field                    | Description |
    |--------------------------|-------------|
    | credentials              | File of `offsetlake.auth.credentials`; None disables passwords and tokens. |
    | acl                      | ACL file (`offsetlake.auth.acl`); None allows every client everything. |
    | tls_certificate, tls_key | PEM files; None disables TLS. |
    | tls_client_ca            | PEM file; clients need a certificate that is signed by this CA. |
    """

    credentials: str | None = None
    acl: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None

    def problems(self) -> list[str]:
        """Return all errors in the paths and in the files."""
        errors = []
        if (self.tls_certificate is None) != (self.tls_key is None):
            errors.append("tls_certificate and tls_key are required together: set both or neither")
        elif self.tls_certificate is not None:
            errors += problems_of(lambda: self.tls_context(self.tls_client_ca))
        elif self.tls_client_ca is not None:
            errors.append("tls_client_ca requires TLS: set tls_certificate and tls_key")
        if self.credentials is not None:
            errors += credentials.problems(Path(self.credentials))
        if self.acl is not None:
            errors += acl.problems(Path(self.acl))
        return errors

    def tls_context(self, client_ca: str | None) -> ssl.SSLContext:
        """Return the context of connections whose clients need a certificate of a CA; None: they need none."""
        ca = None if client_ca is None else Path(client_ca)
        return tls.context(Path(self.tls_certificate or ""), Path(self.tls_key or ""), ca)


class SecurityFiles:
    """The current certificates, credentials and ACLs.

    | Field         | Description |
    |---------------|-------------|
    | tls, http_tls | The contexts of new connections, of the Kafka protocol and of HTTP; None without TLS. |
    | credentials   | None if there is no file of credentials. |
    | attempts      | The login attempts. |
    """

    def __init__(self, paths: SecurityPaths) -> None:
        """Read all files; raise BadRequest if one is invalid (`SecurityPaths.problems` returns all errors)."""
        self._paths = paths
        self.attempts = LoginAttempts()
        self.tls: ssl.SSLContext | None = None
        self.http_tls: ssl.SSLContext | None = None
        self.credentials: Credentials | None = None
        self._acl: Acl | None = None
        self._files: list[_Files] = []
        if paths.tls_certificate is not None:
            self._add((paths.tls_certificate, paths.tls_key, paths.tls_client_ca), self._read_certificates)
        if paths.credentials is not None:
            self._add((paths.credentials,), self._read_credentials)
        if paths.acl is not None:
            self._acl = Acl(Path(paths.acl))
            self._add((paths.acl,), self._acl.read)

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

    def _add(self, paths: tuple[str | None, ...], read: Callable[[], None]) -> None:
        files = _Files([Path(path) for path in paths if path is not None], read)
        files.read()
        self._files.append(files)

    def _read_certificates(self) -> None:
        self.tls = self._paths.tls_context(self._paths.tls_client_ca)
        self.http_tls = self._paths.tls_context(None)  # HTTP clients authenticate by tokens

    def _read_credentials(self) -> None:
        self.credentials = Credentials.read(Path(self._paths.credentials or ""))


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


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Return a value that changes with the file, or with the target of a symbolic link; None if it does not exist."""
    try:
        status = os.stat(path)  # noqa: PTH116 - follows symbolic links
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
