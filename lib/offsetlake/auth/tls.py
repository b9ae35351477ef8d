"""TLS for the listener of the Kafka protocol: certificate files, and the principals of client certificates."""

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offsetlake.errors import BadRequest

_SHORT = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_SPECIAL = re.compile(r'[,+"\\<>;]|^[ #]| $')


def context(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """Return the SSL context of a server from PEM files; with `client_ca`, clients need a certificate of that CA.

    Raise BadRequest if a file is unreadable or invalid, or if the key does not belong to the certificate.
    """
    ssl_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ssl_context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        ssl_context.load_cert_chain(certificate, key, _no_password)
    except (OSError, ValueError) as error:
        raise BadRequest(f"Cannot use TLS certificate {certificate} with key {key}: {_reason(error)}") from error
    if client_ca is not None:
        try:
            ssl_context.load_verify_locations(client_ca)
        except (OSError, ValueError) as error:
            raise BadRequest(f"Cannot use TLS client CA {client_ca}: {_reason(error)}") from error
        ssl_context.verify_mode = ssl.CERT_REQUIRED
    return ssl_context


def principal(certificate: Mapping[str, Any]) -> str:
    """Return the principal of a verified certificate, as in Kafka: `User:` and the subject in the form of RFC 2253.

    Args:
        certificate: The result of `ssl.SSLSocket.getpeercert`.

    Raises:
        BadRequest: The subject is empty, or has an attribute that has no short name in RFC 2253.

    """
    parts = []
    for part in reversed(certificate["subject"]):
        if unknown := next((name for name, _ in part if name not in _SHORT), None):
            raise BadRequest(f"The subject of the client certificate has an unsupported attribute: {unknown}")
        parts.append("+".join(f"{_SHORT[name]}={_escaped(value)}" for name, value in part))
    if not parts:
        raise BadRequest("The client certificate has no subject")
    return f"User:{','.join(parts)}"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda match: f"\\{match[0]}", text)


def _no_password() -> str:
    """Raise ValueError in place of OpenSSL's prompt for the password of an encrypted key."""
    raise ValueError("the key is encrypted; store it without a password, in a file that only its owner can read")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (
            error.reason.replace("_", " ").lower()
            if error.reason
            else "the file does not contain the expected PEM data"
        )
    return str(error.strerror if isinstance(error, OSError) else error)
