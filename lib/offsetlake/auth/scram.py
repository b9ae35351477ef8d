"""The server side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677, KIP-84), without channel binding.

It uses hashlib and no SCRAM library: libraries normalize names and passwords (SASLprep, RFC 4013), Kafka and its
clients do not, so passwords that are not ASCII would not match.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import NamedTuple

from offsetlake.util.log_lines import quoted

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash function by mechanism."""

ITERATIONS = 8192
SALT_BYTES = 24
_FIRST = re.compile(r"[ny],(?:a=(?P<authorization>[^,]*))?,(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?)")
_FINAL = re.compile(r"(?P<without_proof>c=(?P<header>[^,]+),r=(?P<nonce>[^,]+)(?:,[^,]+)*),p=(?P<proof>[^,]+)")
_NAME = re.compile(r"(?:[^=,]|=2C|=3D)+")


class LoginFailed(Exception):
    """A failed login; the message is for the log, and is never sent to the client."""


class Verifier(NamedTuple):
    """The data with which the server verifies a password for one mechanism, without knowing the password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def verifier(mechanism: str, password: str, salt: bytes) -> Verifier:
    """Return the verifier of a password; it takes milliseconds."""
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", name)
    return Verifier(salt, ITERATIONS, hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name))


def password_matches(mechanism: str, verifier: Verifier, password: bytes) -> bool:
    """Check whether a verifier was derived from a password; it takes milliseconds, whatever the result."""
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password, verifier.salt, verifier.iterations)
    stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    return hmac.compare_digest(stored_key, verifier.stored_key)


class ScramExchange:
    """One login: the client sends two messages, each of which is answered.

    `verifier_of` returns the verifier of a name, and of an unknown name too.
    """

    def __init__(self, mechanism: str, verifier_of: Callable[[str], Verifier]) -> None:
        self._hash, self._verifier_of = HASHES[mechanism], verifier_of
        self._verifier: Verifier | None = None
        self._first = self._header = self._nonce = ""
        self.name = ""
        self.done = False

    def answer(self, message: bytes) -> bytes:
        """Return the response to a message; raise LoginFailed if it is invalid or its proof is wrong."""
        try:
            text = message.decode()
        except UnicodeDecodeError as error:
            raise LoginFailed("a SCRAM message that is not UTF-8") from error
        return self._begin(text).encode() if self._verifier is None else self._end(text, self._verifier).encode()

    def _begin(self, text: str) -> str:
        match = _FIRST.fullmatch(text)
        if match is None or not _NAME.fullmatch(match["name"]):
            raise LoginFailed("invalid first SCRAM message, or one with channel binding")
        self.name = match["name"].replace("=2C", ",").replace("=3D", "=")
        if match["authorization"] not in (None, "", match["name"]):
            raise LoginFailed(f"user {quoted(self.name)} requests another authorization identity")
        self._verifier = verifier = self._verifier_of(self.name)
        self._nonce = match["nonce"] + secrets.token_urlsafe(24)
        salt = base64.b64encode(verifier.salt).decode()
        server_first = f"r={self._nonce},s={salt},i={verifier.iterations}"
        self._header = text[: -len(match["bare"])]
        self._first = f"{match['bare']},{server_first}"
        return server_first

    def _end(self, text: str, verifier: Verifier) -> str:
        match = _FINAL.fullmatch(text)
        if match is None:
            raise LoginFailed(f"user {quoted(self.name)}: invalid final SCRAM message")
        if match["nonce"] != self._nonce or _decoded(match["header"]) != self._header.encode():
            raise LoginFailed(f"user {quoted(self.name)}: the SCRAM message belongs to another login")
        signed = f"{self._first},{match['without_proof']}".encode()
        signature, proof = hmac.digest(verifier.stored_key, signed, self._hash), _decoded(match["proof"])
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        if len(proof) != len(signature) or not hmac.compare_digest(
            hashlib.new(self._hash, client_key).digest(), verifier.stored_key
        ):
            raise LoginFailed(f"user {quoted(self.name)}: unknown user or wrong password")
        self.done = True
        return f"v={base64.b64encode(hmac.digest(verifier.server_key, signed, self._hash)).decode()}"


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
