"""Mechanisms of SASL: which are offered, and the one message of PLAIN (RFC 4616)."""

from offsetlake.serve.auth.scram import HASHES, LoginFailed
from offsetlake.serve.logs import quoted

PLAIN = "PLAIN"


def mechanisms(*, passwords_are_safe: bool) -> tuple[str, ...]:
    """Give the mechanisms on offer; PLAIN, which sends the password itself, only where nobody else can read it."""
    return (PLAIN, *HASHES) if passwords_are_safe else (*HASHES,)


def plain_name_and_password(message: bytes) -> tuple[str, bytes]:
    """Read a message of PLAIN; LoginFailed where it is none, or asks to be another one."""
    parts = message.split(b"\0")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise LoginFailed("what is no message of PLAIN")
    authorization, name, password = parts
    text = name.decode(errors="replace")
    if authorization not in {b"", name}:
        raise LoginFailed(f"user {quoted(text)} asks to be another one")
    return text, password
