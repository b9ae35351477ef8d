"""UUIDs, such as topic IDs: 16 bytes, and as text what `org.apache.kafka.common.Uuid.toString` returns.

The text is URL-safe base64 without padding: 22 characters.
"""

import base64
from functools import lru_cache

ZERO_UUID = bytes(16)
"""Kafka's placeholder for an unknown or absent UUID."""
ZERO_UUID_TEXT = "A" * 22


def uuid_text(data: bytes) -> str:
    """Return the text of a UUID."""
    return base64.urlsafe_b64encode(data)[:22].decode()


@lru_cache(maxsize=20_000)
def uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of a UUID.

    Raises:
        ValueError: The text is not a UUID.
    """
    try:
        data = base64.b64decode(f"{text}==", altchars=b"-_", validate=True)
    except ValueError:
        data = b""
    if len(data) != len(ZERO_UUID) or uuid_text(data) != text:
        raise ValueError(f"Invalid UUID {text!r}: expected 22 characters of URL-safe base64")
    return data
