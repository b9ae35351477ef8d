"""TLS on the port of Kafka's protocol: certificate files, and whom a client's certificate names."""

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
    """Make a server's context of files in PEM; with `client_ca` only clients with its certificates are let in.

    Raises BadRequest where a file cannot be read, is no such thing, or the key is not the certificate's.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        made.load_cert_chain(certificate, key, _no_password)
    except (OSError, ValueError) as error:
        raise BadRequest(f"TLS certificate {certificate} with key {key} cannot be used: {_reason(error)}") from error
    if client_ca is not None:
        try:
            made.load_verify_locations(client_ca)
        except (OSError, ValueError) as error:
            raise BadRequest(f"TLS client CA {client_ca} cannot be used: {_reason(error)}") from error
        made.verify_mode = ssl.CERT_REQUIRED
    return made


def principal(certificate: Mapping[str, Any]) -> str:
    """Give the principal of a verified certificate as Kafka does: `User:` and its subject, as RFC 2253 writes it.

    `certificate` is what `ssl` tells of a peer's. Raises BadRequest where the subject has what that has no name for.
    """
    parts = []
    for part in reversed(certificate["subject"]):
        if unknown := next((name for name, _ in part if name not in _SHORT), None):
            raise BadRequest(f"a certificate whose subject has {unknown}")
        parts.append("+".join(f"{_SHORT[name]}={_escaped(value)}" for name, value in part))
    if not parts:
        raise BadRequest("a certificate without a subject")
    return f"User:{','.join(parts)}"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", text)


def _no_password() -> str:
    """Stand for the password of a key, that would be asked for at the terminal else."""
    raise ValueError("the key is encrypted: write it without a password, in a file that its owner alone may read")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "what is in it is not of that kind").replace("_", " ").lower()
    return str(error.strerror if isinstance(error, OSError) else error)
