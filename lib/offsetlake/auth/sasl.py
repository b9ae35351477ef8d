"""SASL mechanisms: those that the server offers, and the message of PLAIN (RFC 4616)."""

from offsetlake.auth.scram import HASHES, LoginFailed
from offsetlake.util.log_lines import quoted

PLAIN = "PLAIN"


def mechanisms(*, passwords_are_safe: bool) -> tuple[str, ...]:
    """Return the mechanisms that are offered; PLAIN sends the password itself, so it needs a safe transport."""
    return (PLAIN, *HASHES) if passwords_are_safe else (*HASHES,)


def plain_name_and_password(message: bytes) -> tuple[str, bytes]:
    """Return name and password from a PLAIN message; raise LoginFailed if it is invalid or names another identity."""
    parts = message.split(b"\0")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise LoginFailed("invalid SASL PLAIN message")
    authorization, name, password = parts
    text = name.decode(errors="replace")
    if authorization not in {b"", name}:
        raise LoginFailed(f"user {quoted(text)} requests another authorization identity")
    return text, password
