"""How a live Kafka cluster is reached: settings by Kafka's own names, TLS, SASL, and what a failure likely means."""

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
"""The settings a connection knows, by Kafka's name, and the field of `KafkaConnection` each one fills."""

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
HOSTNAME_CHECKS = {"https": True, "": False, "none": False}
LARGEST_INT32 = 2**31 - 1
CONNECT_FAILURES = (OSError, KafkaError, ValueError, NotImplementedError)
"""What aiokafka raises while it connects, authenticates, or sends: `likely_cause` puts it into words."""

if logging.getLogger("aiokafka").level == logging.NOTSET:
    # Every failure reaches the caller as an exception with its cause; the library would print it once more.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConnection:
    """Where the brokers are and how to be let in; secrets are no part of its `repr`.

    | field | is |
    |-------|----|
    | bootstrap | `host:port`, several with commas between; without a port it is 9092 |
    | security_protocol | PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL |
    | sasl_mechanism, sasl_username, sasl_password | PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, and who we are |
    | ssl_ca | PEM file of the authorities to trust; None = the system's |
    | ssl_certificate, ssl_key, ssl_key_password | our own certificate, PEM files, where brokers ask for one |
    | ssl_check_hostname | whether the broker's certificate must name its host |
    | request_timeout_ms | limit of each step in ms: describing a log, or getting one more response of it |

    Raises BadRequest when made of settings that do not go together.
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
            raise BadRequest(f"security.protocol is {self.security_protocol!r}: it is one of {', '.join(PROTOCOLS)}")
        if not 0 < self.request_timeout_ms <= LARGEST_INT32:
            raise BadRequest(f"request.timeout.ms is {self.request_timeout_ms}: it is from 1 to {LARGEST_INT32}")
        self._check_sasl()
        self._check_ssl()

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> Self:
        """Build a connection from settings by Kafka's names (`SETTINGS`).

        Raises BadRequest for a name that is none of them, a value that means nothing, or settings that do not go
        together.
        """
        if unknown := sorted(set(settings) - set(SETTINGS)):
            raise BadRequest(f"unknown Kafka setting: {', '.join(unknown)}. Known are {', '.join(SETTINGS)}")
        values: dict[str, Any] = {SETTINGS[name]: value for name, value in settings.items()}
        if (check := values.get("ssl_check_hostname")) is not None:
            if check.lower() not in HOSTNAME_CHECKS:
                raise BadRequest(f"ssl.endpoint.identification.algorithm is {check!r}: it is https, none or empty")
            values["ssl_check_hostname"] = HOSTNAME_CHECKS[check.lower()]
        if (timeout := values.get("request_timeout_ms")) is not None:
            try:
                values["request_timeout_ms"] = int(timeout)
            except ValueError:
                raise BadRequest(f"request.timeout.ms is {timeout!r}: it is a whole number of ms") from None
        return cls(**{"bootstrap": "", **values})

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each bootstrap server, in the order given."""
        return _addresses(self.bootstrap)

    @property
    def request_timeout(self) -> float:
        """The limit of each step, in seconds."""
        return self.request_timeout_ms / 1000

    @property
    def uses_sasl(self) -> bool:
        """Whether brokers ask for a user."""
        return self.security_protocol.startswith("SASL")

    @property
    def uses_ssl(self) -> bool:
        """Whether brokers speak TLS."""
        return self.security_protocol.endswith("SSL")

    def ssl_context(self) -> ssl.SSLContext | None:
        """Build the TLS context, None without TLS; raises BadRequest for files that cannot be used on this host."""
        if not self.uses_ssl:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ssl_ca)
        except OSError as error:
            raise BadRequest(f"ssl.ca.location {self.ssl_ca} is no readable PEM file here: {error}") from error
        context.check_hostname = self.ssl_check_hostname
        if self.ssl_certificate is not None:
            try:
                # An empty password, not none: for an encrypted key OpenSSL would ask at the terminal and wait.
                context.load_cert_chain(self.ssl_certificate, self.ssl_key, self.ssl_key_password or "")
            except OSError as error:
                raise BadRequest(
                    f"ssl.certificate.location {self.ssl_certificate}, ssl.key.location {self.ssl_key} and "
                    f"ssl.key.password do not give a certificate and its key here: {error}"
                ) from error
        return context

    def _check_sasl(self) -> None:
        given = [name for name, attribute in SETTINGS.items() if name.startswith("sasl.") and getattr(self, attribute)]
        if given and not self.uses_sasl:
            raise BadRequest(
                f"{', '.join(given)} given, but security.protocol is {self.security_protocol}: use a SASL one"
            )
        if not self.uses_sasl:
            return
        if self.sasl_mechanism not in MECHANISMS:
            raise BadRequest(f"sasl.mechanism is {self.sasl_mechanism!r}: it is one of {', '.join(MECHANISMS)}")
        if missing := {"sasl.username", "sasl.password"} - set(given):
            raise BadRequest(f"security.protocol {self.security_protocol} also needs {', '.join(sorted(missing))}")

    def _check_ssl(self) -> None:
        given = [
            name
            for name, attribute in SETTINGS.items()
            if name.startswith("ssl.") and getattr(self, attribute) not in {None, True}
        ]
        if given and not self.uses_ssl:
            raise BadRequest(
                f"{', '.join(given)} given, but security.protocol is {self.security_protocol}: use SSL or SASL_SSL"
            )
        if (self.ssl_key or self.ssl_key_password) and not self.ssl_certificate:
            raise BadRequest("ssl.key.location or ssl.key.password given without ssl.certificate.location")


def _addresses(bootstrap: str) -> list[tuple[str, int]]:
    return [(host, port) for host, port, _ in collect_hosts(bootstrap, randomize=False)]


def _check_bootstrap(bootstrap: str) -> None:
    try:
        valid = all(host and 0 < port < 2**16 for host, port in _addresses(bootstrap))
    except ValueError:
        valid = False
    if not valid:
        raise BadRequest(f"bootstrap.servers is {bootstrap!r}: it is HOST:PORT, several with commas between")


async def open_broker(
    connection: KafkaConnection, address: tuple[str, int], context: ssl.SSLContext | None, seconds: float
) -> AIOKafkaConnection:
    """Connect to one broker, TLS and SASL done; raises one of `CONNECT_FAILURES`, TimeoutError after `seconds` s."""
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
    """Say what a failure to connect or to send most likely comes from, and what to look at."""
    if isinstance(failure, KafkaConnectionError) and failure.__cause__ is not None:
        failure = failure.__cause__
    for kind, cause in _CAUSES:
        if isinstance(failure, kind):
            return cause.format(
                protocol=connection.security_protocol, mechanism=connection.sasl_mechanism, failure=failure
            )
    return f"{type(failure).__name__}: {failure}"


_CAUSES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (TimeoutError, "no answer in time; is the host reachable, and does this port speak {protocol}?"),
    (socket.gaierror, "the host name cannot be resolved here"),
    (ConnectionRefusedError, "connection refused; no broker listens on this port"),
    (
        ssl.SSLCertVerificationError,
        "the broker's certificate is not accepted ({failure}); check ssl.ca.location, and that it names this host",
    ),
    (
        ssl.SSLError,
        "TLS failed ({failure}); does this port speak {protocol}, and does it want a certificate of ours?",
    ),
    (SaslAuthenticationFailed, "sasl.username or sasl.password is wrong for {mechanism}"),
    (UnsupportedSaslMechanismError, "the broker does not offer sasl.mechanism {mechanism}"),
    (IllegalSaslStateError, "this port asks for no SASL; check security.protocol, which is {protocol}"),
    (
        (EOFError, KafkaConnectionError, ConnectionResetError),
        "the broker closed the connection; check security.protocol: this port may not speak {protocol}",
    ),
    (NotImplementedError, "the broker speaks none of the versions of Kafka's protocol used here ({failure})"),
)
"""The first that fits, from the special to the general."""
