"""Security of the listeners: which ones need authentication, and which connections a changed password closes."""

import asyncio
import ipaddress
import logging

from offsetlake.auth.sasl import mechanisms
from offsetlake.auth.security_files import SecurityFiles, SecurityPaths
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


def security_paths(settings: Settings) -> SecurityPaths:
    """Return the paths of certificates, credentials and ACLs."""
    return SecurityPaths(
        settings.credentials, settings.acl, settings.tls_certificate, settings.tls_key, settings.tls_client_ca
    )


class Security(SecurityFiles):
    """The current certificates, credentials and ACLs, and the open connections.

    | Field       | Description |
    |-------------|-------------|
    | mechanisms  | The SASL mechanisms that are offered. |
    | connections | All open connections. |
    """

    def __init__(self, settings: Settings) -> None:
        """Read all files; raise BadRequest with all errors in them and in the settings."""
        if errors := problems(settings):
            raise BadRequest("; ".join(errors))
        self._settings = settings
        self.connections = Connections(settings.max_connections, settings.max_connections_per_address)
        self.mechanisms = mechanisms(
            passwords_are_safe=settings.tls_certificate is not None or is_loopback(settings.host)
        )
        super().__init__(security_paths(settings))

    def has_logins(self) -> bool:
        """Check whether clients log in, with a password or a certificate."""
        return self._settings.credentials is not None or self._settings.tls_client_ca is not None

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

    def _read_credentials(self) -> None:
        """Read the credentials, and close the connections of users whose password was changed or removed."""
        previous = {} if self.credentials is None else self.credentials.users
        super()._read_credentials()
        users = {} if self.credentials is None else self.credentials.users
        changed = {f"User:{name}" for name, user in previous.items() if users.get(name) != user}
        for connection, client in self.connections:
            if client.principal in changed:
                LOG.info(
                    "Connection of %s from %s closed: its password was changed or removed",
                    client.principal,
                    client.address,
                )
                connection.close()


def problems(settings: Settings) -> list[str]:
    """Return all errors in the security settings and in the files that they name."""
    return _listener_problems(settings) + security_paths(settings).problems()


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
