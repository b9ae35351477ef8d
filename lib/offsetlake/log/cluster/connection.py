"""Connects to Kafka brokers: client settings by Kafka's names, TLS, SASL, and explanations of failures."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aiokafka.conn import AIOKafkaConnection, collect_hosts, create_conn
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from offsetlake.errors import BadRequest

SETTINGS = {
    "bootstrap.servers": "bootstrap",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.username": "sasl_username",
    "sasl.password": "sasl_password",
    "ssl.ca.location": "ssl_ca",
    "ssl.certificate.location": "ssl_certificate",
    "ssl.key.location": "ssl_key",
    "ssl.key.password": "ssl_key_password",
    "ssl.endpoint.identification.algorithm": "ssl_check_hostname",
    "request.timeout.ms": "request_timeout_ms",
}
"""The supported settings by Kafka's name, and the corresponding fields of `KafkaConnection`."""

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
HOSTNAME_CHECKS = {"https": True, "": False, "none": False}
MAX_INT32 = 2**31 - 1
CONNECT_FAILURES = (OSError, KafkaError, ValueError, NotImplementedError)
"""The errors that aiokafka raises when it connects, authenticates or sends; `likely_cause` explains them."""

if logging.getLogger("aiokafka").level == logging.NOTSET:
    # The caller gets every failure with its cause; the library would log it as well.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConnection:
    """Addresses of brokers and client settings; `repr` omits secrets.

    Attributes:
        bootstrap: `host:port`, or several separated by commas; the default port is 9092.
        security_protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        sasl_mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        sasl_username: The user name.
        sasl_password: The password.
        ssl_ca: The PEM file of the trusted certificate authorities; None for those of the system.
        ssl_certificate: The PEM file of the client certificate, if brokers require one.
        ssl_key: The PEM file of the key of the client certificate.
        ssl_key_password: The password of the key.
        ssl_check_hostname: Whether the certificate of a broker must contain its host name.
        request_timeout_ms: The time limit in milliseconds of each operation, such as fetching the next chunk of a log.

    Raises:
        BadRequest: A setting is invalid, or settings contradict each other.
    """

    bootstrap: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_ca: str | None = None
    ssl_certificate: str | None = None
    ssl_key: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    request_timeout_ms: int = 15_000

    def __post_init__(self) -> None:
        _check_bootstrap(self.bootstrap)
        if self.security_protocol not in PROTOCOLS:
            raise BadRequest(f"Invalid security.protocol {self.security_protocol!r}: expected {', '.join(PROTOCOLS)}.")
        if not 0 < self.request_timeout_ms <= MAX_INT32:
            raise BadRequest(f"Invalid request.timeout.ms {self.request_timeout_ms}: expected 1 to {MAX_INT32}.")
        self._check_sasl()
        self._check_ssl()

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> Self:
        """Return a connection for settings by Kafka's names (`SETTINGS`).

        Raises:
            BadRequest: A setting is unknown or invalid, or settings contradict each other.
        """
        if unknown := sorted(set(settings) - set(SETTINGS)):
            raise BadRequest(f"Unknown Kafka setting {', '.join(unknown)}: expected {', '.join(SETTINGS)}.")
        values: dict[str, Any] = {SETTINGS[name]: value for name, value in settings.items()}
        if (check := values.get("ssl_check_hostname")) is not None:
            if check.lower() not in HOSTNAME_CHECKS:
                raise BadRequest(
                    f"Invalid ssl.endpoint.identification.algorithm {check!r}: expected https, none or empty."
                )
            values["ssl_check_hostname"] = HOSTNAME_CHECKS[check.lower()]
        if (timeout := values.get("request_timeout_ms")) is not None:
            try:
                values["request_timeout_ms"] = int(timeout)
            except ValueError:
                raise BadRequest(
                    f"Invalid request.timeout.ms {timeout!r}: expected a whole number of milliseconds."
                ) from None
        return cls(**{"bootstrap": "", **values})

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each bootstrap server, in order."""
        return _addresses(self.bootstrap)

    @property
    def request_timeout(self) -> float:
        """The time limit of each operation, in seconds."""
        return self.request_timeout_ms / 1000

    @property
    def uses_sasl(self) -> bool:
        """Whether brokers authenticate clients with SASL."""
        return self.security_protocol.startswith("SASL")

    @property
    def uses_ssl(self) -> bool:
        """Whether connections use TLS."""
        return self.security_protocol.endswith("SSL")

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None without TLS.

        Raises:
            BadRequest: A certificate or key file cannot be read.
        """
        if not self.uses_ssl:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ssl_ca)
        except OSError as error:
            raise BadRequest(f"ssl.ca.location {self.ssl_ca} is not a readable PEM file: {error}.") from error
        context.check_hostname = self.ssl_check_hostname
        if self.ssl_certificate is not None:
            try:
                # Without a password, OpenSSL would prompt for that of an encrypted key and wait.
                context.load_cert_chain(self.ssl_certificate, self.ssl_key, self.ssl_key_password or "")
            except OSError as error:
                raise BadRequest(
                    f"ssl.certificate.location {self.ssl_certificate}, ssl.key.location {self.ssl_key} and "
                    f"ssl.key.password are not a valid certificate and its key: {error}."
                ) from error
        return context

    def _check_sasl(self) -> None:
        given = [name for name, attribute in SETTINGS.items() if name.startswith("sasl.") and getattr(self, attribute)]
        if given and not self.uses_sasl:
            raise BadRequest(
                f"{', '.join(given)} is set, but security.protocol is {self.security_protocol}: "
                "use SASL_PLAINTEXT or SASL_SSL."
            )
        if not self.uses_sasl:
            return
        if self.sasl_mechanism not in MECHANISMS:
            raise BadRequest(f"Invalid sasl.mechanism {self.sasl_mechanism!r}: expected {', '.join(MECHANISMS)}.")
        if missing := {"sasl.username", "sasl.password"} - set(given):
            raise BadRequest(f"security.protocol {self.security_protocol} also requires {', '.join(sorted(missing))}.")

    def _check_ssl(self) -> None:
        given = [
            name
            for name, attribute in SETTINGS.items()
            if name.startswith("ssl.") and getattr(self, attribute) not in {None, True}
        ]
        if given and not self.uses_ssl:
            raise BadRequest(
                f"{', '.join(given)} is set, but security.protocol is {self.security_protocol}: use SSL or SASL_SSL."
            )
        if (self.ssl_key or self.ssl_key_password) and not self.ssl_certificate:
            raise BadRequest("ssl.key.location or ssl.key.password is set, but not ssl.certificate.location.")


def _addresses(bootstrap: str) -> list[tuple[str, int]]:
    return [(host, port) for host, port, _ in collect_hosts(bootstrap, randomize=False)]


def _check_bootstrap(bootstrap: str) -> None:
    try:
        valid = all(host and 0 < port < 2**16 for host, port in _addresses(bootstrap))
    except ValueError:
        valid = False
    if not valid:
        raise BadRequest(
            f"Invalid bootstrap.servers {bootstrap!r}: expected HOST:PORT, or several separated by commas."
        )


async def open_broker(
    connection: KafkaConnection, address: tuple[str, int], context: ssl.SSLContext | None, seconds: float
) -> AIOKafkaConnection:
    """Return a connection to a broker after the TLS handshake and authentication.

    Raises one of `CONNECT_FAILURES`, among them TimeoutError after `seconds`.
    """
    host, port = address
    async with asyncio.timeout(seconds):
        return await create_conn(
            host,
            port,
            client_id="offsetlake",
            request_timeout_ms=connection.request_timeout_ms,
            ssl_context=context,
            security_protocol=connection.security_protocol,
            sasl_mechanism=connection.sasl_mechanism,
            sasl_plain_username=connection.sasl_username,
            sasl_plain_password=connection.sasl_password,
        )


def likely_cause(connection: KafkaConnection, failure: BaseException) -> str:
    """Return the likely cause of a failure to connect or to send, and what to check."""
    if isinstance(failure, KafkaConnectionError) and failure.__cause__ is not None:
        failure = failure.__cause__
    for kind, cause in _CAUSES:
        if isinstance(failure, kind):
            return cause.format(
                protocol=connection.security_protocol, mechanism=connection.sasl_mechanism, failure=failure
            )
    return f"{type(failure).__name__}: {failure}"


_CAUSES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (TimeoutError, "no response in time; check that the host is reachable and that this port uses {protocol}"),
    (socket.gaierror, "the host name cannot be resolved"),
    (ConnectionRefusedError, "connection refused; no broker listens on this port"),
    (
        ssl.SSLCertVerificationError,
        "the certificate of the broker is not trusted ({failure}); check ssl.ca.location and the host name",
    ),
    (
        ssl.SSLError,
        "TLS failed ({failure}); check that this port uses {protocol}, and whether it requires a client certificate",
    ),
    (SaslAuthenticationFailed, "sasl.username or sasl.password is wrong for {mechanism}"),
    (UnsupportedSaslMechanismError, "the broker does not support sasl.mechanism {mechanism}"),
    (IllegalSaslStateError, "this port does not use SASL; check security.protocol, which is {protocol}"),
    (
        (EOFError, KafkaConnectionError, ConnectionResetError),
        "the broker closed the connection; check security.protocol: this port may not use {protocol}",
    ),
    (NotImplementedError, "the broker does not support the required versions of Kafka's protocol ({failure})"),
)
"""Causes by type of the failure; the first match counts."""
