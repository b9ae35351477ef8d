"""The credentials file: users and bearer tokens. It contains verifiers and hashes, not passwords and secrets.

JSON, written by `offsetlake credentials`:

| Key    | Description |
|--------|-------------|
| users  | By name and SCRAM mechanism: salt, iterations, stored_key, server_key (RFC 5802). |
| tokens | By id: principal (a name), salt, hash (SHA-256 of salt and secret), expires (ISO 8601). |
| decoy  | The key from which the salts of unknown users are derived, so that they are stable and reveal nothing. |

Bytes are in Base64.
"""

import base64
import binascii
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from offsetlake.auth import scram
from offsetlake.auth.scram import Verifier
from offsetlake.errors import BadRequest
from offsetlake.util.atomic_files import replacing
from offsetlake.util.times import now_ms, to_iso, to_ms

PLAIN_BY = "SCRAM-SHA-512"  # the mechanism whose verifier checks passwords of SASL PLAIN
_SECRET_BYTES = 32
_OTHERS = stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token as stored: the name of its principal, the hash of its secret, and its expiry in epoch ms."""

    name: str
    salt: bytes
    hash: bytes
    expires: int


@dataclass(slots=True)
class Credentials:
    """The contents of the file; `offsetlake credentials` changes them in memory and writes them back."""

    users: dict[str, dict[str, Verifier]] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    decoy: bytes = field(default_factory=lambda: secrets.token_bytes(_SECRET_BYTES))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file; raise BadRequest if it is unreadable or invalid, or if other users may access it."""
        try:
            with path.open(encoding="utf-8") as file:
                mode, text = os.fstat(file.fileno()).st_mode, file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise BadRequest(f"Cannot read credentials file {path}: {error}") from error
        if mode & _OTHERS:
            raise BadRequest(f"Credentials file {path} is accessible to other users: run chmod 600 {path}")
        try:
            return cls(**_parsed(json.loads(text)))
        except (ValueError, KeyError, TypeError, AttributeError, BadRequest) as error:
            raise BadRequest(
                f"Invalid credentials file {path}: {error}; create it with `offsetlake credentials`"
            ) from error

    def write(self, path: Path) -> None:
        """Replace the file, readable by its owner only; raise BadRequest if it cannot be written."""
        try:
            with replacing(path, 0o600) as file:
                file.write_text(json.dumps(self._to_json(), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise BadRequest(f"Cannot write credentials file {path}: {error.strerror}") from error

    def add_user(self, name: str, password: str) -> None:
        """Add a user, or change the password of a user."""
        salts = {mechanism: secrets.token_bytes(scram.SALT_BYTES) for mechanism in scram.HASHES}
        self.users[name] = {mechanism: scram.verifier(mechanism, password, salt) for mechanism, salt in salts.items()}

    def add_token(self, name: str, expires: int) -> str:
        """Add a token for a name, which expires at a time in epoch ms; return the token, which is not stored."""
        id_, secret, salt = secrets.token_hex(6), secrets.token_urlsafe(_SECRET_BYTES), secrets.token_bytes(16)
        self.tokens[id_] = Token(name, salt, _hash(salt, secret), expires)
        return f"{id_}.{secret}"

    def verifier(self, mechanism: str, name: str) -> Verifier:
        """Return the verifier of a user; for an unknown user, one of the same form that no password matches."""
        user = self.users.get(name)
        if user is not None:
            return user[mechanism]
        salt = hmac.digest(self.decoy, f"{mechanism} {name}".encode(errors="replace"), "sha512")
        key = secrets.token_bytes(hashlib.new(scram.HASHES[mechanism]).digest_size)
        return Verifier(salt[: scram.SALT_BYTES], scram.ITERATIONS, key, key)

    def password_matches(self, name: str, password: bytes) -> bool:
        """Check the password of a user; it takes milliseconds, for unknown users too."""
        return scram.password_matches(PLAIN_BY, self.verifier(PLAIN_BY, name), password) and name in self.users

    def authenticate_token(self, text: str) -> str | None:
        """Return the principal of a bearer token, `User:NAME`, or None if the token is unknown or expired."""
        id_, _, secret = text.partition(".")
        token = self.tokens.get(id_)
        if token is None or not hmac.compare_digest(_hash(token.salt, secret), token.hash):
            return None
        return f"User:{token.name}" if now_ms() < token.expires else None

    def _to_json(self) -> dict[str, Any]:
        return {
            "users": {
                name: {mechanism: _verifier_to_json(verifier) for mechanism, verifier in user.items()}
                for name, user in sorted(self.users.items())
            },
            "tokens": {
                id_: {
                    "principal": token.name,
                    "salt": _to_base64(token.salt),
                    "hash": _to_base64(token.hash),
                    "expires": to_iso(token.expires),
                }
                for id_, token in self.tokens.items()
            },
            "decoy": _to_base64(self.decoy),
        }


def problems(path: Path) -> list[str]:
    """Return the errors in a credentials file."""
    return problems_of(lambda: Credentials.read(path))


def problems_of(read: Callable[[], object]) -> list[str]:
    """Return the message of the BadRequest that `read` raises, if it raises one."""
    try:
        read()
    except BadRequest as error:
        return [str(error)]
    return []


def _parsed(data: Mapping[str, Any]) -> dict[str, Any]:
    users = {
        name: {mechanism: _verifier(user[mechanism]) for mechanism in scram.HASHES}
        for name, user in data["users"].items()
    }
    tokens = {
        id_: Token(
            token["principal"], _from_base64(token["salt"]), _from_base64(token["hash"]), to_ms(token["expires"])
        )
        for id_, token in data["tokens"].items()
    }
    return {"users": users, "tokens": tokens, "decoy": _from_base64(data["decoy"])}


def _verifier(values: Mapping[str, Any]) -> Verifier:
    iterations = values["iterations"]
    if not isinstance(iterations, int) or iterations < 1:
        raise ValueError("'iterations' is not a positive integer")
    salt, stored_key, server_key = (_from_base64(values[name]) for name in ("salt", "stored_key", "server_key"))
    return Verifier(salt, iterations, stored_key, server_key)


def _verifier_to_json(verifier: Verifier) -> dict[str, Any]:
    values = verifier._asdict().items()
    return {name: _to_base64(value) if isinstance(value, bytes) else value for name, value in values}


def _hash(salt: bytes, secret: str) -> bytes:
    return hashlib.sha256(salt + secret.encode(errors="replace")).digest()


def _to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("a value is not valid Base64") from error
