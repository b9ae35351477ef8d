"""SCRAM-SHA-256 and SCRAM-SHA-512, the server's side (RFC 5802, RFC 7677; KIP-84), without channel binding, as Kafka.

By hashlib, not by a library of the field: those prepare names and passwords (RFC 4013), which Kafka and its clients do
not, so a password that is not ASCII would be another one here.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import NamedTuple

from offsetlake.serve.logs import quoted

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""By mechanism its hash."""

ITERATIONS = 8192
SALT_BYTES = 24
_FIRST = re.compile(r"[ny],(?:a=(?P<authorization>[^,]*))?,(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?)")
_FINAL = re.compile(r"(?P<without_proof>c=(?P<header>[^,]+),r=(?P<nonce>[^,]+)(?:,[^,]+)*),p=(?P<proof>[^,]+)")
_NAME = re.compile(r"(?:[^=,]|=2C|=3D)+")


class LoginFailed(Exception):
    """A login that failed; the message is for the log, never for who tried."""


class Verifier(NamedTuple):
    """What one mechanism needs to know of a password; the password cannot be told from it."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def verifier(mechanism: str, password: str, salt: bytes) -> Verifier:
    """Make the verifier of a password: milliseconds of work."""
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", name)
    return Verifier(salt, ITERATIONS, hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name))


def fits(mechanism: str, of: Verifier, password: bytes) -> bool:
    """Tell whether a password is the one of a verifier: milliseconds of work, whichever it is."""
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password, of.salt, of.iterations)
    stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    return hmac.compare_digest(stored_key, of.stored_key)


class ScramExchange:
    """One login: two messages of the client, each answered; `verifier_of` knows one of every name, made up or not."""

    def __init__(self, mechanism: str, verifier_of: Callable[[str], Verifier]) -> None:
        self._hash, self._verifier_of = HASHES[mechanism], verifier_of
        self._verifier: Verifier | None = None
        self._first = self._header = self._nonce = ""
        self.name = ""
        self.done = False

    def answer(self, message: bytes) -> bytes:
        """Answer a message. Raises LoginFailed where it is none, or proves nothing."""
        try:
            text = message.decode()
        except UnicodeDecodeError as error:
            raise LoginFailed("a SCRAM message that is not UTF-8") from error
        return self._begin(text).encode() if self._verifier is None else self._end(text, self._verifier).encode()

    def _begin(self, text: str) -> str:
        match = _FIRST.fullmatch(text)
        if match is None or not _NAME.fullmatch(match["name"]):
            raise LoginFailed("what is no first message of SCRAM without channel binding")
        self.name = match["name"].replace("=2C", ",").replace("=3D", "=")
        if match["authorization"] not in (None, "", match["name"]):
            raise LoginFailed(f"user {quoted(self.name)} asks to be another one")
        self._verifier = of = self._verifier_of(self.name)
        self._nonce = match["nonce"] + secrets.token_urlsafe(24)
        salt = base64.b64encode(of.salt).decode()
        server_first = f"r={self._nonce},s={salt},i={of.iterations}"
        self._header = text[: -len(match["bare"])]
        self._first = f"{match['bare']},{server_first}"
        return server_first

    def _end(self, text: str, of: Verifier) -> str:
        match = _FINAL.fullmatch(text)
        if match is None:
            raise LoginFailed(f"user {quoted(self.name)}: what is no last message of SCRAM")
        if match["nonce"] != self._nonce or _decoded(match["header"]) != self._header.encode():
            raise LoginFailed(f"user {quoted(self.name)}: a SCRAM message of another login")
        signed = f"{self._first},{match['without_proof']}".encode()
        signature, proof = hmac.digest(of.stored_key, signed, self._hash), _decoded(match["proof"])
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        if len(proof) != len(signature) or not hmac.compare_digest(
            hashlib.new(self._hash, client_key).digest(), of.stored_key
        ):
            raise LoginFailed(f"user {quoted(self.name)}: no such user, or another password")
        self.done = True
        return f"v={base64.b64encode(hmac.digest(of.server_key, signed, self._hash)).decode()}"


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
