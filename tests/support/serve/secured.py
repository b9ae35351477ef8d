"""The files of a secured serving process, and logins message by message."""

import base64
import hashlib
import hmac
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme

from offsetlake.auth.credentials import Credentials
from support.broker.broker import PASSWORDS
from support.serve.wire_client import WireClient

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
USERS = {"billing": "billing, =secret é", "other": "other-secret", "admin": PASSWORDS["admin"]}
ACL = """
[[acl]]
principal = "User:billing"
group = "billing-*"
permissions = ["read", "commit", "admin"]

[[acl]]
principal = "*"
group = "open"
permissions = ["read"]
"""


@dataclass(frozen=True, slots=True)
class Secured:
    """The files of a secured server in one folder, and the settings that name them."""

    folder: Path
    authority: trustme.CA

    @property
    def ca(self) -> str:
        return str(self.folder / "ca.pem")

    @property
    def acl(self) -> Path:
        return self.folder / "acl.toml"

    @property
    def credentials(self) -> Path:
        return self.folder / "credentials.json"

    @property
    def settings(self) -> dict[str, Any]:
        names = {"tls_certificate": "server.pem", "tls_key": "server.key"}
        return {name: str(self.folder / file) for name, file in names.items()} | {
            "credentials": str(self.credentials),
            "acl": str(self.acl),
        }

    def replace_acl(self, text: str) -> None:
        """Replace the ACL file in one step, so that a server never reads a part of it."""
        new = self.folder / "new-acl.toml"
        new.write_text(text)
        new.replace(self.acl)

    def certify(self, authority: trustme.CA) -> None:
        """Write a certificate of the server, issued by an authority, and its key."""
        issued = authority.issue_cert("localhost", "127.0.0.1")
        (self.folder / "server.pem").write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(self.folder / "server.key"))

    def wire(self, bootstrap: str, context: ssl.SSLContext | None = None) -> WireClient:
        """Connect with TLS, without logging in."""
        client = WireClient(bootstrap)
        context = context or ssl.create_default_context(cafile=self.ca)
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        return client


def secured(folder: Path) -> Secured:
    files = Secured(folder, trustme.CA())
    files.authority.cert_pem.write_to_path(files.ca)
    files.certify(files.authority)
    credentials = Credentials()
    for name, password in USERS.items():
        credentials.add_user(name, password)
    credentials.write(files.credentials)
    files.acl.write_text(ACL)
    return files


def log_in(client: WireClient, name: str, password: str) -> WireClient:
    """Log in by PLAIN; raise AssertionError if that is refused."""
    assert shake_hands(client, "PLAIN")["error_code"] == 0
    assert authenticate(client, b"\0".join((b"", name.encode(), password.encode())))["error_code"] == 0
    return client


def shake_hands(client: WireClient, mechanism: str, version: int = 1) -> dict[str, Any]:
    answer: dict[str, Any] = client.ask(SASL_HANDSHAKE, version, {"mechanism": mechanism})
    return answer


def authenticate(client: WireClient, message: bytes, version: int = 2) -> dict[str, Any]:
    answer: dict[str, Any] = client.ask(SASL_AUTHENTICATE, version, {"auth_bytes": message})
    return answer


def scram_first(name: str) -> bytes:
    return f"n,,n={name},r={secrets.token_hex(8)}".encode()


def scram_last(mechanism: str, password: str, first: bytes, server_first: bytes) -> bytes:
    """Return the final client message that proves a password: an independent implementation of RFC 5802, section 3."""
    algorithm = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
    fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.new(salted, b"Client Key", algorithm).digest()
    without_proof = f"c=biws,r={fields['r']}".encode()
    message = b",".join((first[3:], server_first, without_proof))
    signature = hmac.new(hashlib.new(algorithm, client_key).digest(), message, algorithm).digest()
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return without_proof + b",p=" + base64.b64encode(proof)
