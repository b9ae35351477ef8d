"""The credentials file: who may log in, and by which bearer tokens; only what checks passwords and tokens is in it.

JSON, written by `offsetlake credentials`:

| key    | holds |
|--------|-------|
| users  | by name, by mechanism of SCRAM: salt, iterations, stored_key, server_key (RFC 5802) |
| tokens | by id: principal (a name), salt, hash (SHA-256 of salt and secret), expires (ISO 8601) |
| decoy  | what salts of users that are not there are made of, so that they stay the same and tell nothing |

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

from offsetlake.errors import BadRequest
from offsetlake.serve.auth import scram
from offsetlake.serve.auth.scram import Verifier
from offsetlake.util.atomic_files import replacing
from offsetlake.util.times import now_ms, to_iso, to_ms

PLAIN_BY = "SCRAM-SHA-512"  # whose verifier a password sent as it is, is held against
_SECRET_BYTES = 32
_OTHERS = stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token, as far as it is known: its principal's name, and when it ends, in ms."""

    name: str
    salt: bytes
    hash: bytes
    expires: int


@dataclass(slots=True)
class Credentials:
    """All that the file says; changed in memory and written again by `offsetlake credentials`."""

    users: dict[str, dict[str, Verifier]] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    decoy: bytes = field(default_factory=lambda: secrets.token_bytes(_SECRET_BYTES))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file; BadRequest where that cannot be done, or others may read it too."""
        try:
            with path.open(encoding="utf-8") as file:
                mode, text = os.fstat(file.fileno()).st_mode, file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise BadRequest(f"credentials {path} cannot be read: {error}") from error
        if mode & _OTHERS:
            raise BadRequest(f"credentials {path} are open to every user of this machine: chmod 600 {path}")
        try:
            return cls(**_parsed(json.loads(text)))
        except (ValueError, KeyError, TypeError, AttributeError, BadRequest) as error:
            raise BadRequest(f"credentials {path} are not what `offsetlake credentials` writes: {error}") from error

    def write(self, path: Path) -> None:
        """Write the file in place of the one before, readable by its owner alone; BadRequest where it cannot be."""
        try:
            with replacing(path, 0o600) as file:
                file.write_text(json.dumps(self._plain(), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise BadRequest(f"credentials {path} cannot be written: {error.strerror}") from error

    def add_user(self, name: str, password: str) -> None:
        """Take in a user, or a new password of one."""
        salts = {mechanism: secrets.token_bytes(scram.SALT_BYTES) for mechanism in scram.HASHES}
        self.users[name] = {mechanism: scram.verifier(mechanism, password, salt) for mechanism, salt in salts.items()}

    def add_token(self, name: str, expires: int) -> str:
        """Take in a token for a principal's name, until an instant in ms; gives the token, which is nowhere else."""
        id_, secret, salt = secrets.token_hex(6), secrets.token_urlsafe(_SECRET_BYTES), secrets.token_bytes(16)
        self.tokens[id_] = Token(name, salt, _hash(salt, secret), expires)
        return f"{id_}.{secret}"

    def verifier(self, mechanism: str, name: str) -> Verifier:
        """Give the verifier of a user, for one who is not there one that looks the same and nothing fits."""
        user = self.users.get(name)
        if user is not None:
            return user[mechanism]
        made = hmac.digest(self.decoy, f"{mechanism} {name}".encode(errors="replace"), "sha512")
        key = secrets.token_bytes(hashlib.new(scram.HASHES[mechanism]).digest_size)
        return Verifier(made[: scram.SALT_BYTES], scram.ITERATIONS, key, key)

    def password_fits(self, name: str, password: bytes) -> bool:
        """Tell whether a password is a user's: milliseconds of work, whoever it is."""
        return scram.fits(PLAIN_BY, self.verifier(PLAIN_BY, name), password) and name in self.users

    def authenticate_token(self, text: str) -> str | None:
        """Give the principal of a bearer token, `User:NAME`; None where it is none, or expired."""
        id_, _, secret = text.partition(".")
        token = self.tokens.get(id_)
        if token is None or not hmac.compare_digest(_hash(token.salt, secret), token.hash):
            return None
        return f"User:{token.name}" if now_ms() < token.expires else None

    def _plain(self) -> dict[str, Any]:
        return {
            "users": {
                name: {mechanism: _of_verifier(of) for mechanism, of in user.items()}
                for name, user in sorted(self.users.items())
            },
            "tokens": {
                id_: {
                    "principal": of.name,
                    "salt": _text(of.salt),
                    "hash": _text(of.hash),
                    "expires": to_iso(of.expires),
                }
                for id_, of in self.tokens.items()
            },
            "decoy": _text(self.decoy),
        }


def problems(path: Path) -> list[str]:
    """Say what is wrong with a credentials file."""
    return problems_of(lambda: Credentials.read(path))


def problems_of(read: Callable[[], object]) -> list[str]:
    """Say why something cannot be read."""
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
        id_: Token(of["principal"], _bytes(of["salt"]), _bytes(of["hash"]), to_ms(of["expires"]))
        for id_, of in data["tokens"].items()
    }
    return {"users": users, "tokens": tokens, "decoy": _bytes(data["decoy"])}


def _verifier(of: Mapping[str, Any]) -> Verifier:
    if not isinstance(of["iterations"], int) or of["iterations"] < 1:
        raise ValueError("iterations are a number above 0")
    return Verifier(_bytes(of["salt"]), of["iterations"], _bytes(of["stored_key"]), _bytes(of["server_key"]))


def _of_verifier(of: Verifier) -> dict[str, Any]:
    return {name: _text(value) if isinstance(value, bytes) else value for name, value in of._asdict().items()}


def _hash(salt: bytes, secret: str) -> bytes:
    return hashlib.sha256(salt + secret.encode(errors="replace")).digest()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("bytes that are no Base64") from error
